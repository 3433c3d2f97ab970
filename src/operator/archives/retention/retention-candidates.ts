import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../log/operator-error.ts';
import type { Queryable } from '../../../postgres/shared-connection.ts';
import { type HistoryKind, kindNames } from './history-kinds.ts';
import { type Removal, readRemovals } from './removal-records.ts';
import { cutoffOf } from './retention-age.ts';

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
  const unknown = slugs?.filter(slug => !tenants.some(tenant => tenant.slug === slug)) ?? [];
  if (unknown.length > 0) throw new OperatorError(`there is no tenant ${unknown.join(', ')}`);
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
