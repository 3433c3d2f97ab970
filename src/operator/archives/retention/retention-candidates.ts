import type { Installation } from '../../../installation.ts';
import type { Queryable } from '../../../postgres/shared-connection.ts';
import { type HistoryKind, kindNames } from '../../retention/history-kinds.ts';
import { cutoffOf } from '../../retention/retention-age.ts';
import { requireFound } from '../../tenants/read-tenants.ts';

/** Rows of one kind that are to be removed from a tenant. */
export interface DueRemoval {
  readonly kind: HistoryKind;
  readonly cutoff: Date;
  /** A removal that a killed run has begun, with its archive: it is continued before a new one. */
  readonly unfinished: { readonly id: string; readonly archive: string } | undefined;
}

/** A tenant that may have rows to be removed. */
export interface RetentionCandidate {
  readonly tenantId: string;
  readonly guid: string;
  readonly slug: string;
  readonly database: string;
  /** With the rights of the operator. */
  readonly url: string;
  readonly due: readonly DueRemoval[];
  /** Unfinished removals that the retention does not ask for any more. */
  readonly outdated: readonly string[];
}

interface TenantRow extends Record<HistoryKind, string> {
  id: string;
  guid: string;
  slug: string;
  server: string;
  adminUrl: Buffer | null;
  database: string;
}

/**
 * Returns the tenants whose retention asks for a removal. That takes no connection to a tenant: of all tenants, those
 * are left out from which a run has removed the rows before the same cutoff; a named tenant is always examined.
 * @param slugs only these tenants; undefined: all
 * @throws {OperatorError} when a tenant does not exist
 */
export async function findDueTenants(
  { servers }: Installation,
  control: Queryable,
  slugs: readonly string[] | undefined,
  now: Date,
): Promise<RetentionCandidate[]> {
  const { rows: tenants } = await control.query<{ [Field in keyof TenantRow]: TenantRow[Field] }>(
    `select t.id, guid, slug, s.name as server, admin_url as "adminUrl", database_name as database,
            coalesce(p.activity, d.activity, 'forever') as activity, coalesce(p.audit, d.audit, 'forever') as audit
       from tenants t join servers s on s.id = server_id left join retention_policies p on p.tenant_id = t.id
       left join retention_policies d on d.tenant_id is null
      where status <> 'provisioning' and ($1::text[] is null or slug = any ($1))
      order by slug`,
    [slugs],
  );
  requireFound(slugs ?? [], tenants);
  const removals = Map.groupBy(await readRemovals(control), ({ tenantId }) => tenantId);
  return tenants.flatMap(tenant => {
    const { id: tenantId, guid, slug, server, adminUrl, database } = tenant;
    const all = removals.get(tenantId) ?? [];
    const due = kindNames.flatMap(kind => dueRemoval(kind, cutoffOf(tenant[kind], now), all, slugs !== undefined));
    const outdated = all
      .filter(({ id, state }) => state === 'removing' && !due.some(({ unfinished }) => unfinished?.id === id))
      .map(({ id }) => id);
    if (due.length === 0 && outdated.length === 0) return [];
    const url = servers.adminUrl({ name: server, adminUrl }, database);
    return [{ tenantId, guid, slug, database, url, due, outdated }];
  });
}

/** Returns the removal that one kind of rows needs, if any: one that was begun comes before a new one. */
function dueRemoval(
  kind: HistoryKind,
  cutoff: Date | undefined,
  removals: readonly Removal[],
  isNamed: boolean,
): DueRemoval[] {
  if (!cutoff) return [];
  const own = removals.filter(removal => removal.kind === kind && removal.isCurrent);
  const begun = own.find(({ state, removedBefore }) => state === 'removing' && removedBefore <= cutoff);
  if (begun?.archive)
    return [{ kind, cutoff: begun.removedBefore, unfinished: { id: begun.id, archive: begun.archive } }];
  const isDone = !isNamed && own.some(({ state, removedBefore }) => state === 'done' && removedBefore >= cutoff);
  return isDone ? [] : [{ kind, cutoff, unfinished: undefined }];
}

/** A removal that has begun, as the control database knows it. */
interface Removal {
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
async function readRemovals(control: Queryable): Promise<Removal[]> {
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
