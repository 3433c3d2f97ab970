import type pg from 'pg';
import { responseTypes } from './column-types.ts';
import type { JsonFormat } from './json-columns.ts';

/** The key of a property that no statement has: it lets the compiler know the rows. */
declare const rowType: unique symbol;

/**
 * SQL with its values. Each connection prepares it once, under `name`; with an empty name, it
 * is not prepared.
 *
 * `Row` is the type of the rows that its text returns. Whoever writes the text says so, and
 * the functions that run a statement return rows of that type.
 */
export interface Statement<Row extends object = RowValues> {
  readonly [rowType]?: Row;
  readonly name: string;
  readonly text: string;
  readonly values: unknown[];
  readonly types?: pg.CustomTypesConfig;
  /** The JSON that becomes the only column, `json`, of the rows; undefined: rows of values. */
  readonly json?: JsonFormat;
  /** True for a statement that reads few records, which it finds by an index. */
  readonly isShort?: boolean;
  /** True for a statement that may return more than 100 records, or sort all of its table. */
  readonly isHeavy?: boolean;
  /**
   * The same change as a statement that also sets its actor, so that it can be a transaction by
   * itself.
   */
  readonly withActor?: (actor: string) => Statement;
}

/** Runs a statement, and returns its rows. */
export type RunStatement = <Row extends object = RowValues>(
  statement: Statement<Row>,
) => Promise<Row[]>;

/** An SQL condition, followed by one value for each `?` in it. */
export type Condition = readonly [sql: string, ...values: unknown[]];

/** Undefined conditions are ignored. */
export type Conditions = readonly (Condition | undefined)[];

/** The values of a row, by property of its entity or by field of a view. */
export type RowValues = Record<string, unknown>;

/**
 * The value of a field that stands for the present time of the database, at the begin of the
 * transaction. It is used because the clocks of the processes differ, and the other times of a
 * row come from its database.
 */
export const databaseNow = 'now';

/**
 * A statement that reads and changes nothing: for a change that is not made, or whose response
 * has no body.
 */
export const nothing: Statement = { name: 'nothing', text: 'select', values: [] };

/**
 * The name of each statement text. Bounded: texts come from the source code, values are
 * parameters.
 */
const names = new Map<string, string>();

/**
 * Returns a statement that each connection prepares once. Texts must be bounded in number, as
 * their names are kept.
 */
export function preparedStatement<Row extends object = RowValues>(
  text: string,
  values: unknown[],
): Statement<Row> {
  let name = names.get(text);
  if (name === undefined) {
    name = `statement_${names.size}`;
    names.set(text, name);
  }
  return { name, ...encoded(text, values) };
}

/** Returns a statement that is planned for its values each time. */
export function unpreparedStatement<Row extends object = RowValues>(
  text: string,
  values: unknown[],
): Statement<Row> {
  return { name: '', ...encoded(text, values) };
}

/** Returns the condition of a filter; undefined if the filter has no value. */
export function conditionOf(sql: string, value: unknown): Condition | undefined {
  return value === undefined ? undefined : [sql, value];
}

/**
 * Returns the `where` clause of conditions, all of which must hold; empty for none. Adds their
 * values to `values`.
 */
export function where(conditions: Conditions, values: unknown[]): string {
  const parts = conditions
    .filter(condition => condition !== undefined)
    .map(([sql, ...parameters]) => {
      let next = 0;
      return sql.replaceAll('?', () => `$${values.push(parameters[next++])}`);
    });
  return parts.length > 0 ? ` where ${parts.join(' and ')}` : '';
}

function encoded(text: string, values: unknown[]): Pick<Statement, 'text' | 'values' | 'types'> {
  // `pg` would write dates in this process's time zone, without the seconds that offsets had in
  // the past.
  const texts = values.map(value => (value instanceof Date ? value.toISOString() : value));
  return { text, values: texts, types: responseTypes };
}
