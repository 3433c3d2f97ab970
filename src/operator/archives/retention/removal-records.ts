import type { Queryable } from '../../../postgres/shared-connection.ts';
import type { HistoryKind } from './history-kinds.ts';

/** A removal that has begun, as the control database knows it. */
export interface Removal {
  readonly id: string;
  readonly tenantId: string;
  readonly kind: HistoryKind;
  readonly removedBefore: Date;
  /** The id of the archive that has the rows; null: there was no row to remove. */
  readonly archive: string | null;
  readonly state: 'removing' | 'done';
  /** False if the tenant has another database since: it was moved, or restored data was put in place. */
  readonly isCurrent: boolean;
}

/** Returns the unfinished removals of all tenants, and the last finished one of each kind. */
export async function readRemovals(control: Queryable): Promise<Removal[]> {
  const { rows } = await control.query<{ [Field in keyof Removal]: Removal[Field] }>(
    `select distinct on (tenant_id, kind, r.state, "isCurrent") r.id, tenant_id as "tenantId", kind, archive, r.state,
            removed_before as "removedBefore", r.database_name = t.database_name as "isCurrent"
       from history_removals r join tenants t on t.id = r.tenant_id where r.state <> 'stopped'
      order by tenant_id, kind, r.state, "isCurrent", removed_before desc, r.id desc`,
  );
  return rows;
}

interface NewRemoval {
  readonly tenantId: string;
  readonly database: string;
  readonly kind: HistoryKind;
  readonly cutoff: Date;
  readonly archive: string;
  readonly oldest: string | null;
  readonly newest: string | null;
  readonly requestedBy: string;
}

/**
 * Begins a removal, and keeps its archive for `keepDays` from now on: `backup prune` does not remove it meanwhile.
 * @returns the id of the removal; undefined if the archive is not complete any more
 */
export async function beginRemoval(
  control: Queryable,
  { tenantId, database, kind, cutoff, archive, oldest, newest, requestedBy }: NewRemoval,
  keepDays: number,
): Promise<string | undefined> {
  const { rows } = await control.query<{ id: string }>(
    `with kept as (
       update archives set kept_until = greatest(kept_until, now() + make_interval(days => $8::int))
        where id = $5 and state = 'complete' returning id)
     insert into history_removals (tenant_id, database_name, kind, removed_before, archive, oldest, newest, requested_by)
     select $1, $2, $3, $4, id, $6, $7, $9 from kept returning id`,
    [tenantId, database, kind, cutoff, archive, oldest, newest, keepDays, requestedBy],
  );
  return rows[0]?.id;
}

/** Records that a tenant has no rows that are old enough, so that it is not opened again for the same cutoff. */
export async function recordNothingToRemove(
  control: Queryable,
  { tenantId, database, kind, cutoff, requestedBy }: Omit<NewRemoval, 'archive' | 'oldest' | 'newest'>,
): Promise<void> {
  await control.query(
    `insert into history_removals (tenant_id, database_name, kind, removed_before, requested_by, state, finished_at)
     values ($1, $2, $3, $4, $5, 'done', now())`,
    [tenantId, database, kind, cutoff, requestedBy],
  );
}

/** Records how many rows are removed so far. */
export async function recordProgress(control: Queryable, id: string, rows: number): Promise<void> {
  await control.query('update history_removals set rows = greatest(rows, $2) where id = $1', [id, rows]);
}

/** Ends a removal: `done`, or `stopped` for an error, after which the next run begins anew. */
export async function endRemoval(control: Queryable, id: string, error: string | null): Promise<void> {
  await control.query(
    `update history_removals set state = case when $2::text is null then 'done' else 'stopped' end, finished_at = now(),
            error = $2 where id = $1`,
    [id, error],
  );
}
