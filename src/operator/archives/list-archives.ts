import type { ControlStatements } from '../../installation.ts';
import { isoTime } from '../../postgres/iso-time.ts';

/** An archive as the command line and the console show it. Times are in ISO 8601. */
export interface ArchiveSummary {
  id: string;
  /** The tenant at the time of the archive; null for the control database. */
  slug: string | null;
  tenant: string | null;
  file: string;
  snapshotAt: string;
  /** Until when the database is known to be the same as the archive; null: nothing is known after the snapshot. */
  unchangedAt: string | null;
  schemaVersion: string | null;
  rows: number;
  bytes: number;
  server: string;
  database: string;
  verifiedAt: string | null;
  provedAt: string | null;
  /** What the last verification or drill found. */
  fault: string | null;
  /** Not removed before, because it has rows that a retention removed; null: no such rows. */
  keptUntil: string | null;
}

/** Which archives a list has; what is undefined does not limit it. */
interface ArchiveFilter {
  /** `BackupTarget.description` of the target that has them. */
  target?: string;
  /** The guid of their tenant. */
  guid?: string | undefined;
  limit?: number;
}

/** Returns the complete archives that the filter selects, the newest first. */
export async function listArchives(
  { statements }: ControlStatements,
  { target, guid, limit }: ArchiveFilter,
): Promise<ArchiveSummary[]> {
  return statements.execute(
    `select id, slug, tenant_guid as tenant, file, ${isoTime('snapshot_at')} as "snapshotAt",
            ${isoTime('unchanged_at')} as "unchangedAt", schema_version as "schemaVersion",
            coalesce(rows, 0)::float8 as rows, coalesce(bytes, 0)::float8 as bytes, server, database_name as database,
            ${isoTime('verified_at')} as "verifiedAt", ${isoTime('proved_at')} as "provedAt", fault,
            ${isoTime('kept_until')} as "keptUntil"
       from archives
      where state = 'complete' and (?::text is null or target = ?) and (?::uuid is null or tenant_guid = ?)
      order by snapshot_at desc, id limit ?`,
    [target, target, guid, guid, limit].map(value => value ?? null),
  );
}

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
  /** Whether an archive was ever restored and compared. */
  isProved: boolean;
}

/**
 * The newest archive of each tenant: one look into the index for each, because an installation has many times more
 * archives than tenants.
 */
const newestArchives = `
  select t.slug, t.status, t.guid, a.snapshot_at, greatest(a.snapshot_at, a.unchanged_at) as covered, a.bytes, a.fault
    from tenants t
    left join lateral (select * from archives where tenant_guid = t.guid and state = 'complete'
                        order by snapshot_at desc limit 1) a on true
   where t.status <> 'provisioning'`;

/** Returns how well tenants are archived: those whose newest archive is faulty, missing or old first. */
export async function listArchiveAges(
  { statements }: ControlStatements,
  limit: number,
  offset: number,
): Promise<ArchiveAge[]> {
  return statements.execute(
    `select slug, status, ${isoTime('snapshot_at')} as "snapshotAt", ${isoTime('covered')} as "coveredUntil",
            (select ${isoTime('max(proved_at)')} from archives where tenant_guid = guid and state = 'complete')
              as "provedAt", fault, bytes::float8
       from (${newestArchives} order by a.fault is null, covered nulls first, t.slug limit ? offset ?) shown
      order by fault is null, covered nulls first, slug`,
    [limit, offset],
  );
}

/** Counts how well tenants are archived. */
export async function countArchiveAges({ statements }: ControlStatements): Promise<ArchiveCounts> {
  const [counts] = await statements.execute<ArchiveCounts[]>(
    `select count(*)::int as tenants, (count(*) filter (where snapshot_at is null))::int as without,
            (count(*) filter (where fault is not null))::int as faulty,
            exists (select from archives where proved_at is not null and state = 'complete') as "isProved"
       from (${newestArchives}) newest`,
  );
  return counts ?? { tenants: 0, without: 0, faulty: 0, isProved: false };
}
