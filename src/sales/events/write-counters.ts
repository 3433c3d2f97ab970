/**
 * SQL for the server's count of rows that were inserted into a database: each change of the
 * feed is such a row: the same text in every session.
 */
export const writeCountersSql = `concat_ws(' ', oid, extract(epoch from pg_stat_get_db_stat_reset_time(oid)),
                                     pg_stat_get_db_tuples_inserted(oid))`;

/** Returns the counters of a server after so many more rows were inserted. */
export function writtenAfter(written: string, inserted: number): string {
  const at = written.lastIndexOf(' ') + 1;
  return `${written.slice(0, at)}${Number(written.slice(at)) + inserted}`;
}

/**
 * Says without a connection to a database if it may have changed: how many rows were inserted,
 * and whether a session of another program exists, whose rows PostgreSQL may count up to 10 s
 * later. A session whose kind the login may not see counts as one. Columns of `WriteCounters`,
 * for a row with the `oid` of a database.
 */
export const writeCounters = `
  ${writeCountersSql} as written,
  oid = any (array(select datid from pg_stat_activity
                    where application_name not like 'backoffice-api%' and datid is not null
                      and coalesce(backend_type, 'client backend') = 'client backend')) as "isShared"`;

export interface WriteCounters {
  readonly written: string;
  readonly isShared: boolean;
}
