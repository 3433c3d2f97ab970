import type { ControlStatements } from '../../installation.ts';
import { isoTime } from '../../postgres/iso-time.ts';

/** How well a tenant is archived. */
interface ArchiveAge {
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

/** How well the fleet is archived. */
interface ArchiveAges {
  tenants: number;
  /** How many of them have no archive. */
  without: number;
  /** How many have a newest archive that is faulty. */
  faulty: number;
  /** Whether an archive was ever restored and compared. */
  isProved: boolean;
  /** Those whose newest archive is faulty, missing or old first. */
  ages: ArchiveAge[];
}

/**
 * Returns how well tenants are archived. It takes one look into the index for the newest archive of each, because an
 * installation has many times more archives than tenants.
 * @param limit how many are listed
 */
export async function readArchiveAges(
  { statements }: ControlStatements,
  { limit, offset = 0 }: { limit: number; offset?: number },
): Promise<ArchiveAges> {
  const [ages] = await statements.execute<ArchiveAges[]>(
    `with newest as materialized (
       select slug, status, guid, snapshot_at, greatest(snapshot_at, unchanged_at) as covered, bytes, fault
         from tenants t
         left join lateral (select snapshot_at, unchanged_at, bytes, fault from archives
                             where tenant_guid = t.guid and state = 'complete' order by snapshot_at desc limit 1) a on true
        where status <> 'provisioning'),
     shown as (select * from newest order by fault is null, covered nulls first, slug limit ? offset ?),
     ages as (
       select slug, status, ${isoTime('snapshot_at')} as "snapshotAt", ${isoTime('covered')} as "coveredUntil",
              bytes::float8, fault,
              (select ${isoTime('max(proved_at)')} from archives where tenant_guid = guid and state = 'complete') as "provedAt"
         from shown order by fault is null, covered nulls first, slug)
     select count(*)::int as tenants, (count(*) filter (where snapshot_at is null))::int as without,
            (count(*) filter (where fault is not null))::int as faulty,
            exists (select from archives where proved_at is not null and state = 'complete') as "isProved",
            (select coalesce(json_agg(ages), '[]') from ages) as ages
       from newest`,
    [limit, offset],
  );
  return ages as ArchiveAges;
}
