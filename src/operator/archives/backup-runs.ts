import type { Queryable } from '../../postgres/shared-connection.ts';

/** The numbers of a run. */
export interface RunCounts {
  archived: number;
  unchanged: number;
  failed: number;
  /** Bytes of the archives that were written. */
  bytes: number;
}

/**
 * Begins a run. Runs whose process was killed become `abandoned`: the caller has the lock, so none of them goes on.
 * @returns the id of the run
 */
export async function beginBackupRun(control: Queryable, requestedBy: string): Promise<string> {
  await control.query(`update backup_runs set state = 'abandoned', finished_at = now() where state = 'running'`);
  const { rows } = await control.query<{ id: string }>(
    'insert into backup_runs (requested_by) values ($1) returning id',
    [requestedBy],
  );
  return rows[0]?.id ?? '';
}

/** Ends a run. It has succeeded if no database failed. */
export async function endBackupRun(control: Queryable, id: string, counts: RunCounts): Promise<void> {
  await control.query(
    `update backup_runs set state = case when $4 = 0 then 'succeeded' else 'failed' end, finished_at = now(),
            archived = $2, unchanged = $3, failed = $4, bytes = $5 where id = $1`,
    [id, counts.archived, counts.unchanged, counts.failed, counts.bytes],
  );
}
