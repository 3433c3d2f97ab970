import { DateTimeType, DecimalType, type EntityClass } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import { camelCase, snakeCase } from '../runtime/casing.ts';
import { type EntityColumn, entityColumns } from '../seams/entity-columns.ts';
import { isoTime } from './iso-time.ts';

/** The SQL of one table's columns, by property of its entity and by field of a view. */
export class TableColumns {
  /** The name of the table. */
  readonly name: string;
  /** The fields of the view, as columns of a `select`. */
  protected readonly fields: string;
  /**
   * Like `fields`, but with the values that PostgreSQL writes into JSON as `responseTypes` and
   * `JSON.stringify` do.
   */
  protected readonly jsonFields: string;
  /** Like `jsonFields`, of which the process makes the JSON (`JsonRows`). */
  protected readonly plainFields: string;
  /** The stored properties, as columns of a `select`. */
  protected readonly storedProperties: string;
  readonly #properties: Readonly<Record<string, EntityColumn>>;

  /** @throws when `entity` is not an entity of MikroORM */
  constructor(entity: EntityClass<object>, view: z.ZodObject) {
    const { table, columns } = entityColumns(entity);
    this.name = table;
    this.#properties = columns;
    const fields = Object.keys(view.shape);
    this.fields = fields
      .map(field => `${this.sourceOf(camelCase(field))} as "${field}"`)
      .join(', ');
    this.jsonFields = fields
      .map(field => `${this.#jsonSource(camelCase(field))} as "${field}"`)
      .join(', ');
    this.plainFields = fields
      .map(field => `${this.#plainSource(camelCase(field))} as "${field}"`)
      .join(', ');
    this.storedProperties = Object.keys(this.#properties)
      .filter(property => !this.#properties[property]?.formula)
      .map(property => `${this.sourceOf(property)} as "${property}"`)
      .join(', ');
  }

  /** The column of a property, or the SQL of a computed one. */
  sourceOf(property: string): string {
    const { formula, fieldName } = this.#properties[property] ?? {};
    return formula?.(this.name) ?? fieldName ?? snakeCase(property);
  }

  /** True for a property that is not a column of the table. */
  protected isComputed(property: string): boolean {
    return this.#properties[property]?.formula !== undefined;
  }

  /**
   * SQL of the text of a property, with which it compares as equal: a timestamp in UTC, with
   * microseconds.
   */
  protected textOf(property: string): string {
    const source = this.sourceOf(property);
    if (!this.#isOfType(property, DateTimeType)) return `${source}::text`;
    return `to_char(${source} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')`;
  }

  #jsonSource(property: string): string {
    const source = this.#plainSource(property);
    return this.#isOfType(property, DateTimeType) ? isoTime(source) : source;
  }

  #plainSource(property: string): string {
    const source = this.sourceOf(property);
    return this.#isOfType(property, DecimalType) ? `trim_scale(${source})` : source;
  }

  #isOfType(property: string, type: typeof DateTimeType | typeof DecimalType): boolean {
    const actual = this.#properties[property]?.type;
    return actual === type || actual instanceof type;
  }
}
