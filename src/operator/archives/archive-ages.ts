import { isoTime } from '../../postgres/iso-time.ts';
import type { Statements } from '../../postgres/statements.ts';

/** How well a tenant is archived. */
export interface ArchiveAge {
  slug: string;
  status: string;
  /** The snapshot of the newest archive; null: there is none. */
  snapshotAt: string | null;
  /** Until when the database is known to be the same as that archive. */
  coveredUntil: string | null;
  bytes: number | null;
  /** When an archive of the tenant was last restored and compared. */
  provedAt: string | null;
  /** What the last verification or drill found in the newest archive. */
  fault: string | null;
}

/** Counts of `ArchiveAge`. */
export interface ArchiveCounts {
  tenants: number;
  without: number;
  faulty: number;
  proved: number;
}

interface Reader {
  readonly statements: Statements;
}

const ages = `
  select t.slug, t.status, a.snapshot_at, a.unchanged_at, a.bytes, a.fault,
         (select max(proved_at) from archives where tenant_guid = t.guid and state = 'complete') as proved_at
    from tenants t left join lateral (
           select snapshot_at, unchanged_at, bytes, fault from archives
            where tenant_guid = t.guid and state = 'complete' order by snapshot_at desc limit 1) a on true
   where t.status <> 'provisioning'`;

/** Returns how well tenants are archived: those whose newest archive is faulty, missing or old first. */
export async function listArchiveAges({ statements }: Reader, limit: number, offset: number): Promise<ArchiveAge[]> {
  return statements.execute(
    `select slug, status, ${isoTime('snapshot_at')} as "snapshotAt",
            ${isoTime('greatest(snapshot_at, unchanged_at)')} as "coveredUntil", bytes::float8 as bytes,
            ${isoTime('proved_at')} as "provedAt", fault
       from (${ages}) a
      order by fault is null, greatest(snapshot_at, unchanged_at) nulls first, slug limit ? offset ?`,
    [limit, offset],
  );
}

/** Counts how well tenants are archived. */
export async function countArchiveAges({ statements }: Reader): Promise<ArchiveCounts> {
  const [counts] = await statements.execute<ArchiveCounts[]>(
    `select count(*)::int as tenants, (count(*) filter (where snapshot_at is null))::int as without,
            count(fault)::int as faulty, count(proved_at)::int as proved from (${ages}) a`,
  );
  return counts ?? { tenants: 0, without: 0, faulty: 0, proved: 0 };
}

/** An archive of a tenant, as the ledger has it. */
export interface TenantArchive {
  id: string;
  snapshotAt: string;
  unchangedAt: string | null;
  bytes: number;
  verifiedAt: string | null;
  provedAt: string | null;
  fault: string | null;
}

/** Returns the newest complete archives of a tenant, the newest first. @param guid of the tenant */
export async function tenantArchives({ statements }: Reader, guid: string, limit: number): Promise<TenantArchive[]> {
  return statements.execute(
    `select id, ${isoTime('snapshot_at')} as "snapshotAt", ${isoTime('unchanged_at')} as "unchangedAt",
            coalesce(bytes, 0)::float8 as bytes, ${isoTime('verified_at')} as "verifiedAt",
            ${isoTime('proved_at')} as "provedAt", fault
       from archives where tenant_guid = ? and state = 'complete' order by snapshot_at desc limit ?`,
    [guid, limit],
  );
}
