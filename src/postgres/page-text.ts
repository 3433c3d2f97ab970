import { continuations, type KeysetKey } from './keyset.ts';
import { type Conditions, where } from './statement.ts';

/** Which rows of a table a page has. */
export interface Page {
  readonly conditions: Conditions;
  /** Conditions that search texts: no index has the order of the page, and they may match few rows or most of them. */
  readonly searches?: Conditions;
  /** The order of the rows, which no two rows share. */
  readonly keys: readonly KeysetKey[];
  /** The values of the keys in the row before the page, as PostgreSQL prints them. Null counts as larger than any. */
  readonly after?: readonly (string | null)[] | undefined;
  readonly limit?: number | undefined;
}

/** The probe has at least so many rows. */
const minProbe = 1_000;

/**
 * Returns the `from` clause, in the order of the page, that selects its rows under the name of the table. It is written
 * for a statement that is not prepared: clients combine filters and orders, and each connection would keep each
 * combination. Its plan is made for its values.
 *
 * Without `searches`, the rows come from an index in the order of the page, or from a sort, as the planner decides.
 * With them it would decide by an estimate of how many rows match, which is often wrong for texts, and then search
 * 100,000 rows in the order of the page for a text that few rows have. So the page searches the first rows of the
 * order, the *probe*. If they do not fill the page, it searches all rows without an order (`offset 0` keeps the planner
 * from using one), by an index of the texts if there is one, and sorts those that match: they are few, because the
 * probe had few.
 *
 * @param values gets the values of the text
 */
export function pageText(table: string, page: Page, values: unknown[]): string {
  const { conditions, searches = [], keys, after, limit } = page;
  const order = `order by ${keys.map(({ sql, direction }) => `${sql} ${direction}`).join(', ')}`;
  const ranges = after ? continuations(keys, after) : [[]];
  const firstRows = (also: Conditions, max: string): string =>
    ranges
      .map(range => `(select * from ${table}${where([...conditions, ...also, ...range], values)} ${order} ${max})`)
      .join(' union all ');
  if (limit === undefined) return `(${firstRows(searches, '')}) ${table} ${order}`;
  const max = `$${values.push(limit)}`;
  if (searches.length === 0) return `(${firstRows([], `limit ${max}`)}) ${table} ${order} limit ${max}`;

  const probed = `limit ${minProbe + 3 * limit}`;
  const found = `(select count(*) from probe)`;
  const allRows = ranges.map(
    range =>
      `select * from (select * from ${table}${where([...conditions, ...searches, ...range], values)} offset 0) all_rows
        where ${found} < ${max}`,
  );
  return `(
    with probe as materialized (
      select * from (select * from (${firstRows([], probed)}) ${table} ${order} ${probed}) ${table}${where(searches, values)}
       ${order} limit ${max})
    select * from (select * from probe where ${found} >= ${max} union all ${allRows.join(' union all ')}) ${table}
     ${order} limit ${max}
  ) ${table} ${order}`;
}
