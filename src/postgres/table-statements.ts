import { type EntityClass, EntitySchema } from '@mikro-orm/postgresql';
import pg from 'pg';
import type { z } from 'zod';
import { camelCase, snakeCase } from '../casing.ts';

/** SQL with its values. Each connection prepares it once, under its name. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  readonly values: unknown[];
  readonly types?: pg.CustomTypesConfig;
}

/** SQL with a `?` for each of the values that follow it. */
export type Condition = readonly [sql: string, ...values: unknown[]];

/** Of which those that are undefined do not count. */
type Conditions = readonly (Condition | undefined)[];

/** What is stored of a record: values of its entity, by property. */
export type RowValues = Record<string, unknown>;

interface SelectOptions {
  /** By property. */
  orderBy?: Readonly<Record<string, 'asc' | 'desc'>>;
  limit?: number | undefined;
}

/** What MikroORM knows of a property when an entity has been defined. */
interface Property {
  formula?: (table: string) => string;
  fieldName?: string;
}

/**
 * The statements of one table. What they return are records as they are answered: the fields of a view, under their
 * names and in its order, and nothing else, ready to be sent without becoming an entity.
 */
export class TableStatements {
  readonly #name: string;
  readonly #properties: Record<string, Property>;
  readonly #fields: string;
  readonly #columns: string;

  constructor(entity: EntityClass<object>, view: z.ZodObject) {
    const meta = EntitySchema.REGISTRY.get(entity as never)?.meta;
    if (!meta) throw new Error(`${entity.name} is not an entity`);
    this.#name = meta.tableName;
    this.#properties = meta.properties as unknown as Record<string, Property>;
    this.#fields = Object.keys(view.shape)
      .map(field => `${this.#source(camelCase(field))} as "${field}"`)
      .join(', ');
    this.#columns = Object.keys(this.#properties)
      .filter(property => !this.#properties[property]?.formula)
      .map(property => `${this.#source(property)} as "${property}"`)
      .join(', ');
  }

  select(conditions: Conditions, { orderBy = {}, limit }: SelectOptions = {}): Statement {
    const values: unknown[] = [];
    const order = Object.entries(orderBy).map(([property, direction]) => `${this.#source(property)} ${direction}`);
    const text = `select ${this.#fields} from ${this.#name}${where(conditions, values)}`;
    const ordered = order.length > 0 ? `${text} order by ${order.join(', ')}` : text;
    return statement(limit === undefined ? ordered : `${ordered} limit $${values.push(limit)}`, values);
  }

  /** The rows with the values of their entity, moments as text, locked until the transaction ends. */
  lock(conditions: Conditions): Statement {
    const values: unknown[] = [];
    const text = `select ${this.#columns} from ${this.#name}${where(conditions, values)} for update`;
    return { ...statement(text, values), types: asProperties };
  }

  insert(row: RowValues): Statement {
    const properties = Object.keys(row);
    const columns = properties.map(property => this.#source(property)).join(', ');
    const places = properties.map((_, i) => `$${i + 1}`).join(', ');
    const text = `insert into ${this.#name} (${columns}) values (${places}) returning ${this.#fields}`;
    return statement(text, Object.values(row));
  }

  update(row: RowValues, conditions: Conditions): Statement {
    const values: unknown[] = Object.values(row);
    const changes = Object.keys(row).map((property, i) => `${this.#source(property)} = $${i + 1}`);
    const text = `update ${this.#name} set ${changes.join(', ')}${where(conditions, values)} returning ${this.#fields}`;
    return statement(text, values);
  }

  delete(conditions: Conditions): Statement {
    const values: unknown[] = [];
    return statement(`delete from ${this.#name}${where(conditions, values)} returning ${this.#fields}`, values);
  }

  /** The column or the SQL that a property stands for. */
  #source(property: string): string {
    const { formula, fieldName } = this.#properties[property] ?? {};
    return formula?.(this.#name) ?? fieldName ?? snakeCase(property);
  }
}

function where(conditions: Conditions, values: unknown[]): string {
  const parts = conditions
    .filter(condition => condition !== undefined)
    .map(([sql, ...given]) => {
      let next = 0;
      return sql.replaceAll('?', () => `$${values.push(given[next++])}`);
    });
  return parts.length > 0 ? ` where ${parts.join(' and ')}` : '';
}

const names = new Map<string, string>(); // as many as there are statements in the source, by their conditions

function statement(text: string, values: unknown[]): Statement {
  let name = names.get(text);
  if (name === undefined) {
    name = `statement_${names.size}`;
    names.set(text, name);
  }
  // `pg` would write moments in the time zone of this process, without the seconds that zones once had.
  const sent = values.map(value => (value instanceof Date ? value.toISOString() : value));
  return { name, text, values: sent, types: asAnswered };
}

const { INT8, NUMERIC, TIMESTAMPTZ } = pg.types.builtins;
const int8Array = 1016;
const numbers: [number, (text: string) => unknown][] = [
  [INT8, Number],
  [NUMERIC, Number],
  [int8Array, text => (text === '{}' ? [] : text.slice(1, -1).split(',').map(Number))],
];
const asAnswered = parsing([...numbers, [TIMESTAMPTZ, toIso]]);
const asProperties = parsing([...numbers, [TIMESTAMPTZ, text => text]]); // written back to the microsecond

/** How the text of a column becomes a value, by the type of the column; those that are not named, as `pg` does it. */
function parsing(parsers: [number, (text: string) => unknown][]): pg.CustomTypesConfig {
  const byType = new Map(parsers);
  return { getTypeParser: (type, format) => byType.get(type) ?? pg.types.getTypeParser(type, format) };
}

/** `2026-11-21 10:00:00.123456+00` → `2026-11-21T10:00:00.123Z`. What is no moment (`infinity`) stays as it is. */
function toIso(text: string): string {
  const plain = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/.exec(text);
  if (!plain) return text;
  return `${plain[1]}T${plain[2]}.${(plain[3] ?? '').padEnd(3, '0').slice(0, 3)}Z`;
}
