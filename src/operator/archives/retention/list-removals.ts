import type { ControlStatements } from '../../../installation.ts';
import { isoTime } from '../../../postgres/iso-time.ts';
import type { RemovedRows } from './retention-run.ts';

/** The record of a removal: rows that were removed from a tenant. Times are in ISO 8601. */
export interface RemovalSummary extends Omit<RemovedRows, 'file'> {
  slug: string;
  state: string;
  /** Until when `backup prune` keeps it; null: it is gone, and so are the rows. */
  archiveKeptUntil: string | null;
  requestedBy: string;
  startedAt: string;
  finishedAt: string | null;
  error: string | null;
}

/** Returns what was removed, the newest first. */
export async function listRemovals(
  { statements }: ControlStatements,
  slug: string | undefined,
): Promise<RemovalSummary[]> {
  return statements.execute(
    `select t.slug, r.kind, r.state, r.rows::float8 as rows, ${isoTime('r.oldest')} as oldest, ${isoTime('r.newest')} as newest,
            ${isoTime('r.removed_before')} as "removedBefore", r.archive, ${isoTime('a.kept_until')} as "archiveKeptUntil",
            r.requested_by as "requestedBy", ${isoTime('r.started_at')} as "startedAt",
            ${isoTime('r.finished_at')} as "finishedAt", r.error
       from history_removals r join tenants t on t.id = r.tenant_id
       left join archives a on a.id = r.archive and a.state = 'complete'
      where r.archive is not null and coalesce(?, t.slug) = t.slug order by r.id desc`,
    [slug ?? null],
  );
}
