import type pg from 'pg';

/**
 * SQL that returns the processes of the sessions which wait for a lock of the session that runs
 * it, as `pid`. A number of a table, or a key of an advisory lock, would name those of other
 * databases too; and within a transaction, `pg_stat_activity` has only the sessions that
 * existed at its first use.
 */
export const lockWaiters =
  'select distinct pid from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))';

/**
 * Returns the processes of the sessions that wait for a lock of this one, also while it is in a
 * transaction.
 */
export async function readLockWaiters(holder: pg.Client): Promise<number[]> {
  const { rows } = await holder.query<{ pid: number }>(lockWaiters);
  return rows.map(({ pid }) => pid);
}
