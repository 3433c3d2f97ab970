import type { ControlStatements } from '../../../control/installation.ts';
import { isoTime } from '../../../lib/postgres/iso-time.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import type { DueRemoval, DueTenant } from './due-tenants.ts';
import type { HistoryKind } from './history-kinds.ts';
import type { OldRows } from './old-rows.ts';

/**
 * Begins the record of a removal. The record of a killed run becomes `stopped`: this removal
 * goes on with its rows.
 * @returns the id of the record
 */
export async function beginRemoval(
  control: Queryable,
  { tenantId, database }: DueTenant,
  { kind, cutoff }: DueRemoval,
  {
    oldest,
    newest,
    archive,
    requestedBy,
  }: OldRows & { archive: string | null; requestedBy: string },
): Promise<string> {
  const { rows } = await control.query<{ id: string }>(
    `with stopped as (
       update history_removals set state = 'stopped', finished_at = now(), error = 'the process was ended'
        where tenant_id = $1 and kind = $3 and state = 'removing')
     insert into history_removals
            (tenant_id, database_name, kind, removed_before, archive, oldest, newest, requested_by)
     values ($1, $2, $3, $4, $5, $6, $7, $8) returning id`,
    [tenantId, database, kind, cutoff, archive, oldest, newest, requestedBy],
  );

  return rows[0]?.id ?? '';
}

/**
 * Records that a tenant has no rows that are old enough, so that it is not opened again for the
 * same cutoff.
 */
export async function recordNothingToRemove(
  control: Queryable,
  { tenantId, database }: DueTenant,
  { kind, cutoff }: DueRemoval,
  requestedBy: string,
): Promise<void> {
  await control.query(
    `insert into history_removals (tenant_id, database_name, kind, removed_before, requested_by, state, finished_at)
     values ($1, $2, $3, $4, $5, 'done', now())`,
    [tenantId, database, kind, cutoff, requestedBy],
  );
}

/** Records how many rows are removed so far. */
export async function recordProgress(control: Queryable, id: string, rows: number): Promise<void> {
  await control.query('update history_removals set rows = greatest(rows, $2) where id = $1', [
    id,
    rows,
  ]);
}

/** Ends a removal: `done`, or `stopped` for an error, after which the next run goes on. */
export async function endRemoval(
  control: Queryable,
  id: string,
  error: string | null,
): Promise<void> {
  await control.query(
    `update history_removals set state = case when $2::text is null then 'done' else 'stopped' end,
            finished_at = now(), error = $2 where id = $1`,
    [id, error],
  );
}

/**
 * Rows of one kind that were removed from a tenant, or would be. Times, in ISO 8601, are those
 * of the first and last row.
 */
export interface RemovedRows {
  kind: HistoryKind;
  rows: number;
  oldest: string | null;
  newest: string | null;
  removedBefore: string;
  /** The name of the archive that has the removed rows; null: none was asked for. */
  archive: string | null;
}

/** The record of a removal: rows that were removed from a tenant. Times are in ISO 8601. */
export interface RemovalSummary extends RemovedRows {
  slug: string;
  state: string;
  requestedBy: string;
  startedAt: string;
  finishedAt: string | null;
  error: string | null;
}

/** Returns the removals, the newest first. */
export async function listRemovals(
  { statements }: ControlStatements,
  slug: string | undefined,
): Promise<RemovalSummary[]> {
  const { rows } = await statements.query<RemovalSummary>(
    `select t.slug, r.kind, r.state, r.rows::float8 as rows, ${isoTime('r.oldest')} as oldest,
            ${isoTime('r.newest')} as newest, ${isoTime('r.removed_before')} as "removedBefore",
            r.archive, r.requested_by as "requestedBy", ${isoTime('r.started_at')} as "startedAt",
            ${isoTime('r.finished_at')} as "finishedAt", r.error
       from history_removals r join tenants t on t.id = r.tenant_id
      where r.oldest is not null and coalesce($1, t.slug) = t.slug order by r.id desc`,
    [slug ?? null],
  );

  return rows;
}
