/**
 * SQL for the server's count of rows that were inserted into a database. It grows with each
 * change of the feed, and is the same text in every session.
 */
export const writeCountersSql = `concat_ws(' ', oid, extract(epoch from pg_stat_get_db_stat_reset_time(oid)),
                                     pg_stat_get_db_tuples_inserted(oid))`;

/** Returns the counters as they are after `inserted` more rows. */
export function writtenAfter(written: string, inserted: number): string {
  const at = written.lastIndexOf(' ') + 1;
  return `${written.slice(0, at)}${Number(written.slice(at)) + inserted}`;
}

/**
 * Columns of `WriteCounters`, for a row with the `oid` of a database. They show without a
 * connection to the database if it may have changed: how many rows were inserted, and whether
 * another program has a session there. PostgreSQL may count the rows of such a session up to
 * 10 s later. A session whose kind the login may not see is taken for one of another program.
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
