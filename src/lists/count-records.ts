import type { ListQuery } from '../http/lists/list-query.ts';
import { listConditions } from './list-conditions.ts';
import type { ListSource } from './read-records.ts';

/** More records are not counted. So many take PostgreSQL some 20 ms where an index or the table alone has them. */
const maxCount = 100_000;
/** A count ends after so many ms: filters that few of many records match read the whole table. */
const maxMs = 1_000;

/**
 * Counts the records that the filters of a request match. The counts of a tenant run one after the other, as its large
 * reads do: a tenant that counts without a pause keeps one core of its server busy, not all.
 * @returns undefined when there are more than 100,000, or when the count takes more than a second
 */
export async function countRecords(query: ListQuery, source: ListSource): Promise<number | undefined> {
  const { table, conditions, reads } = source;
  const { conditions: filters, searches } = listConditions(query, table);
  const select = table.selectCount([...conditions, ...filters, ...searches], maxCount + 1);
  const rows = await (reads.readWithin?.(select, maxMs) ?? reads.read(select));
  const count = rows && Number(rows[0]?.count);
  return count === undefined || count > maxCount ? undefined : count;
}
