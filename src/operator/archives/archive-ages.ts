import type { ControlStatements } from '../../installation.ts';
import { isoTime } from '../../postgres/iso-time.ts';

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

/** Returns how well tenants are archived: those whose newest archive is faulty, missing or old first. */
export async function listArchiveAges(
  { statements }: ControlStatements,
  limit: number,
  offset: number,
): Promise<ArchiveAge[]> {
  return statements.execute(
    `select slug, status, ${isoTime('newest')} as "snapshotAt", ${isoTime('covered')} as "coveredUntil",
            ${isoTime('proved')} as "provedAt", fault,
            (select max(bytes)::float8 from archives where tenant_guid = guid and snapshot_at = newest) as bytes
       from (select t.slug, t.status, t.guid, newest, covered, proved, f.fault
               from tenants t
               left join (select tenant_guid, max(snapshot_at) as newest, max(proved_at) as proved,
                                 max(greatest(snapshot_at, unchanged_at)) as covered
                            from archives where state = 'complete' group by 1) a on a.tenant_guid = t.guid
               left join archives f on f.tenant_guid = t.guid and f.snapshot_at = newest
                     and f.state = 'complete' and f.fault is not null
              where t.status <> 'provisioning'
              order by f.fault is null, covered nulls first, t.slug limit ? offset ?) shown
      order by fault is null, covered nulls first, slug`,
    [limit, offset],
  );
}

/** Counts how well tenants are archived. */
export async function countArchiveAges({ statements }: ControlStatements): Promise<ArchiveCounts> {
  const [counts] = await statements.execute<ArchiveCounts[]>(
    `select count(*)::int as tenants, (count(*) filter (where newest is null))::int as without,
            (count(*) filter (where is_proved))::int as proved,
            (select count(*)::int from archives f join tenants on guid = f.tenant_guid
              where f.state = 'complete' and f.fault is not null and not exists (
                select from archives n where n.tenant_guid = f.tenant_guid and n.state = 'complete'
                   and n.snapshot_at > f.snapshot_at)) as faulty
       from tenants t
       left join (select tenant_guid, max(snapshot_at) as newest, bool_or(proved_at is not null) as is_proved
                    from archives where state = 'complete' group by 1) a on a.tenant_guid = t.guid
      where t.status <> 'provisioning'`,
  );
  return counts ?? { tenants: 0, without: 0, faulty: 0, proved: 0 };
}
