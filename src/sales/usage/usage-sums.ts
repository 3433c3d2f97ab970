import { isoTime } from '../../lib/postgres/iso-time.ts';

/**
 * SQL for the columns that sum hours of `tenant_usage`. Of several sizes of a database, the
 * last one is returned, with the hour in which doctor measured it.
 */
export const usageSums = `
  sum(requests)::float8 as requests, sum(refused)::float8 as refused, sum(writes)::float8 as writes,
  sum(response_bytes)::float8 as "responseBytes", round(sum(database_ms)) as "databaseMs",
  (array_agg(database_bytes order by hour desc) filter (where database_bytes is not null))[1]::float8 as "databaseBytes",
  ${isoTime('(max(hour) filter (where database_bytes is not null))')} as "databaseMeasuredAt"`;
