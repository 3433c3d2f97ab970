import { DateTimeType, DecimalType, type EntityClass, EntitySchema } from '@mikro-orm/postgresql';
import type pg from 'pg';
import type { z } from 'zod';
import { camelCase, snakeCase } from '../casing.ts';
import { entityTypes, responseTypes } from './column-types.ts';
import { continuations, type KeysetKey } from './keyset.ts';

/** SQL with its values. Each connection prepares it once, under `name`; with an empty name, it is not prepared. */
export interface Statement {
  readonly name: string;
  /** Names the statements that return results of about the same size, if they have no name of their own. */
  readonly group?: string;
  readonly text: string;
  readonly values: unknown[];
  readonly types?: pg.CustomTypesConfig;
}

/** An SQL condition, followed by one value for each `?` in it. */
export type Condition = readonly [sql: string, ...values: unknown[]];

/** Undefined conditions are ignored. */
type Conditions = readonly (Condition | undefined)[];

/** The values of a row, by property of its entity or by field of a view. */
export type RowValues = Record<string, unknown>;

/** A list of at most so many records is read as one row. */
const shortList = 100;

interface SelectOptions {
  /** The direction of each property to order by. */
  orderBy?: Readonly<Record<string, 'asc' | 'desc'>>;
  limit?: number | undefined;
}

interface PageOptions {
  /** The order of the records, which no two records share. */
  keys: readonly PageKey[];
  /** The keys of the record before the page, as `selectPage` returned them. */
  after?: readonly (string | null)[] | undefined;
  limit?: number | undefined;
}

interface PageKey {
  readonly property: string;
  readonly direction: 'asc' | 'desc';
  readonly isNullable: boolean;
}

/** MikroORM's metadata of a property, as far as it is known before any connection. */
interface Property {
  formula?: (table: string) => string;
  fieldName?: string;
  type?: unknown;
}

/**
 * Builds the SQL statements of one table. They return records as the API sends them: exactly the fields of a view, in
 * its order. The records are sent without becoming entities.
 */
export class TableStatements {
  readonly #name: string;
  readonly #properties: Record<string, Property>;
  readonly #fields: string;
  readonly #jsonFields: string;
  readonly #columns: string;

  constructor(entity: EntityClass<object>, view: z.ZodObject) {
    const meta = EntitySchema.REGISTRY.get(entity as never)?.meta;
    if (!meta) throw new Error(`${entity.name} is not an entity`);
    this.#name = meta.tableName;
    this.#properties = meta.properties as unknown as Record<string, Property>;
    this.#fields = Object.keys(view.shape)
      .map(field => `${this.sourceOf(camelCase(field))} as "${field}"`)
      .join(', ');
    this.#jsonFields = Object.keys(view.shape)
      .map(field => `${this.#jsonSource(camelCase(field))} as "${field}"`)
      .join(', ');
    this.#columns = Object.keys(this.#properties)
      .filter(property => !this.#properties[property]?.formula)
      .map(property => `${this.sourceOf(property)} as "${property}"`)
      .join(', ');
  }

  /** The name of the table. */
  get name(): string {
    return this.#name;
  }

  select(conditions: Conditions, options?: SelectOptions): Statement {
    const values: unknown[] = [];
    return statement(this.#selectText(this.#fields, conditions, options, values), values);
  }

  /**
   * Like `select`, but each row has one column, `json`: records in their order, separated by commas, each as the JSON
   * text that `JSON.stringify` makes of a row of `select`. PostgreSQL makes the text, so that a list of 50,000 records
   * takes a quarter of this process's time.
   *
   * A page of at most 100 records is one row, empty for no record: this process takes two thirds of the time that it
   * takes for one row each. In a longer list, each row is one record, because a large row would be handled without a
   * pause.
   */
  selectJson(conditions: Conditions, options?: SelectOptions): Statement {
    const values: unknown[] = [];
    const records = this.#selectText(this.#jsonFields, conditions, options, values);
    const text =
      options?.limit !== undefined && options.limit <= shortList
        ? `select array_to_string(array(select row_to_json(record)::text from (${records}) record), ',') as json`
        : `select row_to_json(record)::text as json from (${records}) record`;
    return statement(text, values);
  }

  /**
   * Selects the records after another one, in any order. Each row has `json`, a record as in `selectJson`, and `keys`,
   * the values of the keys as PostgreSQL prints them. Null counts as larger than every value.
   *
   * The statement is not prepared: clients combine filters and orders, and each connection would keep each combination.
   * Its plan is made for its values.
   */
  selectPage(conditions: Conditions, { keys, after, limit }: PageOptions): Statement {
    const values: unknown[] = [];
    const keysetKeys = keys.map(key => ({ ...key, sql: this.sourceOf(key.property) }));
    const order = orderOf(keysetKeys);
    const max = limit === undefined ? '' : ` limit $${values.push(limit)}`;
    // Each part is one range of an index. The parts exclude each other.
    const parts = (after ? continuations(keysetKeys, after) : [[]]).map(
      range =>
        `(select ${this.#name}.* from ${this.#name}${where([...conditions, ...range], values)} order by ${order}${max})`,
    );
    const text = `
      select (select row_to_json(record)::text from (select ${this.#jsonFields}) record) as json,
             array[${keys.map(({ property }) => this.#keyText(property)).join(', ')}] as keys
        from (${parts.join(' union all ')}) ${this.#name} order by ${order}${max}`;
    return { name: '', group: `page of ${this.#name}`, ...encoded(text, values) };
  }

  /** Returns all properties of the entity, timestamps as text, and locks the rows until the transaction ends. */
  selectForUpdate(conditions: Conditions): Statement {
    const values: unknown[] = [];
    const text = `select ${this.#columns} from ${this.#name}${where(conditions, values)} for update`;
    return { ...statement(text, values), types: entityTypes };
  }

  insert(row: RowValues): Statement {
    const properties = Object.keys(row);
    const columns = properties.map(property => this.sourceOf(property)).join(', ');
    const parameters = properties.map((_, i) => `$${i + 1}`).join(', ');
    const text = `insert into ${this.#name} (${columns}) values (${parameters}) returning ${this.#fields}`;
    return statement(text, Object.values(row));
  }

  /** Inserts rows that have the same properties, in their order. */
  insertMany(rows: readonly RowValues[]): Statement {
    const columns = Object.keys(rows[0] ?? {}).map(property => this.sourceOf(property));
    const text = `insert into ${this.#name} (${columns.join(', ')})
      select ${columns.join(', ')} from jsonb_populate_recordset(null::${this.#name}, $1)`;
    return statement(text, [this.#toJson(rows)]);
  }

  /** Sets all other properties of the rows that have the same value in `key`. The rows have the same properties. */
  updateMany(rows: readonly RowValues[], key: string): Statement {
    const columns = Object.keys(rows[0] ?? {}).map(property => this.sourceOf(property));
    const keyColumn = this.sourceOf(key);
    const assignments = columns.filter(column => column !== keyColumn).map(column => `${column} = changed.${column}`);
    const text = `update ${this.#name} stored set ${assignments.join(', ')}
      from jsonb_populate_recordset(null::${this.#name}, $1) changed where stored.${keyColumn} = changed.${keyColumn}`;
    return statement(text, [this.#toJson(rows)]);
  }

  update(row: RowValues, conditions: Conditions): Statement {
    const values: unknown[] = Object.values(row);
    const assignments = Object.keys(row).map((property, i) => `${this.sourceOf(property)} = $${i + 1}`);
    const text = `update ${this.#name} set ${assignments.join(', ')}${where(conditions, values)}`;
    return statement(`${text} returning ${this.#fields}`, values);
  }

  delete(conditions: Conditions): Statement {
    const values: unknown[] = [];
    return statement(`delete from ${this.#name}${where(conditions, values)} returning ${this.#fields}`, values);
  }

  /** The rows as JSON, under the names of their columns. */
  #toJson(rows: readonly RowValues[]): string {
    return JSON.stringify(
      rows.map(row =>
        Object.fromEntries(Object.entries(row).map(([property, value]) => [this.sourceOf(property), value])),
      ),
    );
  }

  #selectText(
    fields: string,
    conditions: Conditions,
    { orderBy = {}, limit }: SelectOptions = {},
    values: unknown[],
  ): string {
    const order = Object.entries(orderBy).map(([property, direction]) => `${this.sourceOf(property)} ${direction}`);
    const text = `select ${fields} from ${this.#name}${where(conditions, values)}`;
    const ordered = order.length > 0 ? `${text} order by ${order.join(', ')}` : text;
    return limit === undefined ? ordered : `${ordered} limit $${values.push(limit)}`;
  }

  /** SQL of a value that PostgreSQL writes into JSON as `responseTypes` and `JSON.stringify` do. */
  #jsonSource(property: string): string {
    const source = this.sourceOf(property);
    if (this.#isOfType(property, DecimalType)) return `trim_scale(${source})`;
    if (!this.#isOfType(property, DateTimeType)) return source;
    return `to_char(${source} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
  }

  /** SQL of the text of a key, with which it compares as equal: a timestamp in UTC, with microseconds. */
  #keyText(property: string): string {
    const source = this.sourceOf(property);
    if (!this.#isOfType(property, DateTimeType)) return `${source}::text`;
    return `to_char(${source} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')`;
  }

  #isOfType(property: string, type: typeof DateTimeType | typeof DecimalType): boolean {
    const actual = this.#properties[property]?.type;
    return actual === type || actual instanceof type;
  }

  /** The column of a property, or the SQL of a computed one. */
  sourceOf(property: string): string {
    const { formula, fieldName } = this.#properties[property] ?? {};
    return formula?.(this.#name) ?? fieldName ?? snakeCase(property);
  }
}

function where(conditions: Conditions, values: unknown[]): string {
  const parts = conditions
    .filter(condition => condition !== undefined)
    .map(([sql, ...parameters]) => {
      let next = 0;
      return sql.replaceAll('?', () => `$${values.push(parameters[next++])}`);
    });
  return parts.length > 0 ? ` where ${parts.join(' and ')}` : '';
}

/** The name of each statement text. Bounded: texts come from the source code, values are parameters. */
const names = new Map<string, string>();

function statement(text: string, values: unknown[]): Statement {
  let name = names.get(text);
  if (name === undefined) {
    name = `statement_${names.size}`;
    names.set(text, name);
  }
  return { name, ...encoded(text, values) };
}

function encoded(text: string, values: unknown[]): Omit<Statement, 'name'> {
  // `pg` would write dates in this process's time zone, without the seconds that offsets had in the past.
  const texts = values.map(value => (value instanceof Date ? value.toISOString() : value));
  return { text, values: texts, types: responseTypes };
}

function orderOf(keys: readonly KeysetKey[]): string {
  return keys.map(({ sql, direction }) => `${sql} ${direction}`).join(', ');
}
