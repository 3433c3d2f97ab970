import type { ControlStatements } from '../../control/installation.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { presentTarget } from './archive-rows.ts';

/** The state of a tenant's archives in the present target. */
export interface ArchiveAge {
  slug: string;
  status: string;
  /** The time of the newest archive; null: there is none. */
  newestAt: string | null;
  /** The time until which the database is known to be equal to the newest archive. */
  coveredUntil: string | null;
  archives: number;
  /** The bytes of all archives. */
  bytes: number;
  /** The time at which an archive of the tenant was last restored and compared. */
  provedAt: string | null;
  /** The fault that a drill or a verification found in the newest archive. */
  fault: string | null;
}

/** The numbers of tenants with and without archives. */
interface ArchiveCounts {
  tenants: number;
  /** The number of tenants without an archive. */
  without: number;
  /** True if an archive was ever restored and compared. */
  isProved: boolean;
}

/** The state of the fleet's archives. */
interface ArchiveAges extends ArchiveCounts {
  /** The number of tenants whose newest archive is faulty. */
  faulty: number;
  /** The tenants, those whose newest archive is faulty, missing or old first. */
  ages: ArchiveAge[];
}

/** SQL of the complete archives of a tenant in the present target. */
const ofTenant = `
  archives where target = ${presentTarget} and tenant_guid = guid and state = 'complete'`;

/** The tenants, each with its newest archive. */
const tenants = `
  select slug, status, guid, archived_at as newest_at, covered_at, fault
    from tenants left join lateral (
      select archived_at, covered_at, fault from ${ofTenant} order by archived_at desc limit 1) newest on true
   where status <> 'provisioning'`;

const provedAt = `
  (select max(proved_at) from ${ofTenant} and proved_at is not null and fault is null)`;

/** SQL of the columns that are shown of a tenant, with its last proof. */
const ageColumns = `
  slug, status, ${isoTime('newest_at')} as "newestAt", ${isoTime('covered_at')} as "coveredUntil",
  (select count(*)::int from ${ofTenant}) as archives,
  (select coalesce(sum(bytes), 0)::float8 from ${ofTenant}) as bytes, ${isoTime(provedAt)} as "provedAt", fault`;

/**
 * Returns how well tenants are archived.
 * @param limit how many are listed
 */
export async function readArchiveAges(
  { statements }: ControlStatements,
  { limit, offset = 0 }: { limit: number; offset?: number },
): Promise<ArchiveAges> {
  const { rows } = await statements.query<ArchiveAges>(
    `with seen as materialized (${tenants}),
     shown as (select * from seen order by fault is null, covered_at nulls first, slug limit $1 offset $2),
     ages as (select ${ageColumns} from shown order by fault is null, covered_at nulls first, slug)
     select count(*)::int as tenants, (count(*) filter (where newest_at is null))::int as without,
            (count(*) filter (where fault is not null))::int as faulty,
            exists (select from archives where target = ${presentTarget} and state = 'complete' and proved_at is not null) as "isProved",
            (select coalesce(json_agg(ages), '[]') from ages) as ages
       from seen`,
    [limit, offset],
  );
  const [ages] = rows;

  return ages as ArchiveAges;
}

/**
 * Returns how many tenants have no archive, and whether an archive was ever proved.
 */
export async function countUnarchived({ statements }: ControlStatements): Promise<ArchiveCounts> {
  const { rows } = await statements.query<ArchiveCounts>(
    `select count(*)::int as tenants, (count(*) filter (where newest_at is null))::int as without,
            exists (select from archives where target = ${presentTarget} and state = 'complete' and proved_at is not null) as "isProved"
       from (${tenants}) as seen`,
  );
  const [counts] = rows;

  return counts as ArchiveCounts;
}

/**
 * Returns how well one tenant is archived.
 * @param guid of the tenant
 */
export async function readArchiveAge(
  { statements }: ControlStatements,
  guid: string,
): Promise<ArchiveAge | undefined> {
  const { rows } = await statements.query<ArchiveAge>(
    `with seen as (${tenants} and guid = $1) select ${ageColumns} from seen`,
    [guid],
  );
  const [age] = rows;

  return age;
}
