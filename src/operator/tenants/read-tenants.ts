import type { TenantStatus } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import {
  type Health,
  type HealthReason,
  healthColumns,
  healthOf,
  healthSql,
  type StoredHealth,
  toReasons,
} from './tenant-health.ts';

/** A tenant as the command line shows it. */
export interface TenantSummary {
  id: number;
  guid: string;
  slug: string;
  name: string;
  appId: string;
  /** The address that links in its mails lead to; null: that of all tenants. */
  appUrl: string | null;
  database: string;
  server: string;
  status: TenantStatus;
  /** True: it sends no mail, and its legacy clients get no access. */
  isolated: boolean;
  schemaVersion: string | null;
  createdAt: string;
}

/** A tenant with both of its marks: what was decided (`status`), and whether it is well. */
export interface TenantWithHealth extends TenantSummary {
  health: Health;
  /** Why it is not well, the worst first. */
  reasons: HealthReason[];
  /** When doctor last looked at all tenants; null: never. */
  checkedAt: string | null;
}

const columns = `
  t.id::float8, t.guid, t.slug, t.name, t.app_id as "appId", t.app_url as "appUrl",
  t.database_name as database, s.name as server, t.status, t.isolated, t.schema_version as "schemaVersion",
  ${isoTime('t.created_at')} as "createdAt"`;

const summaries = `select ${columns} from tenants t join servers s on s.id = t.server_id`;

/** What can be decided about a tenant. */
export const tenantStates = ['provisioning', 'active', 'suspended', 'deleted'] as const;

/** The columns that a list of tenants can be sorted by. */
export const tenantSorts = ['slug', 'name', 'status', 'health', 'version', 'server', 'created'] as const;

const sortColumns: Record<(typeof tenantSorts)[number], string> = {
  slug: 't.slug',
  name: 't.name',
  status: 't.status',
  health: 'coalesce(health.rank, 0)',
  version: 't.schema_version',
  server: 's.name',
  created: 't.created_at',
};

/** Which tenants a list has, and in which order; what is undefined does not limit it. */
export interface TenantFilter {
  /** A part of the slug, the name or the guid, in any case. */
  search?: string | undefined;
  status?: string | undefined;
  health?: string | undefined;
  server?: string | undefined;
  /** The beginning of a schema version; `between`: of a database between two. */
  version?: string | undefined;
  /** One of `tenantSorts`, with `-` in front for the other direction. */
  sort?: string | undefined;
  /** At most so many, after the first ones. */
  limit?: number;
  offset?: number;
}

/** Returns the tenants that the filter selects, by default all, ordered by slug. */
export async function listTenants(
  { statements }: ControlStatements,
  filter: TenantFilter = {},
): Promise<TenantWithHealth[]> {
  const { sort = 'slug', limit = null, offset = 0, health } = filter;
  const column = sortColumns[sort.replace(/^-/, '') as keyof typeof sortColumns];
  const order = `${column} ${sort.startsWith('-') ? 'desc' : 'asc'} nulls last`;
  const { where, values } = conditionsOf(filter);
  const picked = `select t.* from tenants t join servers s on s.id = t.server_id ${where}`;
  const part = [limit, offset];

  // Only where the health of all decides which tenants are shown, it is looked up for all.
  const needsAll = health !== undefined || column === sortColumns.health;
  const [ofPicked, ofAll] = needsAll ? ['', 'limit ? offset ?'] : [`order by ${order}, t.slug limit ? offset ?`, ''];
  const rows = await statements.execute<(TenantSummary & StoredHealth & Pick<TenantWithHealth, 'checkedAt'>)[]>(
    `with ${await healthSql(`${picked} ${ofPicked}`)}
     select ${columns}, ${healthColumns}, (select ${isoTime('made_at')} from last) as "checkedAt"
       from picked t join servers s on s.id = t.server_id left join health on health.id = t.id
      ${health === undefined ? '' : `where ${healthOf('health.rank')} = ?`}
      order by ${order}, t.slug ${ofAll}`,
    needsAll ? [...values, ...(health === undefined ? [] : [health]), ...part] : [...values, ...part],
  );

  return rows.map(({ reasons, ...tenant }) => ({ ...tenant, reasons: toReasons(reasons) }));
}

/** Returns how many tenants the filter selects. */
export async function countTenants({ statements }: ControlStatements, filter: TenantFilter): Promise<number> {
  const { where, values } = conditionsOf(filter);
  const from = `from tenants t join servers s on s.id = t.server_id ${where}`;
  const { health } = filter;
  const [row] =
    health === undefined
      ? await statements.execute<{ count: number }[]>(`select count(*)::int as count ${from}`, values)
      : await statements.execute<{ count: number }[]>(
          `with ${await healthSql(`select t.* ${from}`)}
           select count(*)::int as count from picked left join health using (id) where ${healthOf('rank')} = ?`,
          [...values, health],
        );

  return row?.count ?? 0;
}

/** The tenants of a fleet by health, and those that need attention most. */
interface FleetHealth {
  counts: Record<Health, number>;
  /** When doctor last looked at all of them; null: never. */
  checkedAt: string | null;
  /** Those that are not well for a reason of their own: the worst first, and of these the ones that were so first. */
  troubled: (Pick<TenantWithHealth, 'slug' | 'health' | 'reasons'> & { since: string | null })[];
  /** How many such there are, with those that are not listed. */
  total: number;
}

/**
 * Reads how well the fleet is. That a server does not respond is a reason of the server: its tenants are counted, and
 * not listed. So are those that are only not checked yet.
 * @param limit how many are listed
 */
export async function readFleetHealth({ statements }: ControlStatements, limit: number): Promise<FleetHealth> {
  const [row] = await statements.execute<
    (Omit<FleetHealth, 'troubled'> & {
      troubled: (StoredHealth & { slug: string; since: string | null })[];
    })[]
  >(
    `with ${await healthSql('select * from tenants')},
     troubled as materialized (
       select slug, health.* from picked join health using (id)
        where not is_of_server and (rank > 1 or reasons @> '[{"severity": "done"}]')),
     shown as (select * from troubled order by rank desc, since nulls last, slug limit ?)
     select (select json_object_agg(health, tenants) from (
               select ${healthOf('rank')} as health, count(*) as tenants
                 from picked left join health using (id) group by 1) c) as counts,
            (select ${isoTime('made_at')} from last) as "checkedAt",
            (select count(*)::int from troubled) as total,
            (select coalesce(json_agg(json_build_object('slug', slug, 'health', ${healthOf('rank')},
                      'since', ${isoTime('since')}, 'reasons', reasons) order by rank desc, since nulls last, slug), '[]')
               from shown) as troubled`,
    [limit],
  );
  const { counts, troubled = [], checkedAt = null, total = 0 } = row ?? {};

  return {
    counts: { well: 0, unchecked: 0, warning: 0, unwell: 0, ...counts },
    checkedAt,
    troubled: troubled.map(({ reasons, ...tenant }) => ({ ...tenant, reasons: toReasons(reasons) })),
    total,
  };
}

function conditionsOf({ search, status, server, version }: TenantFilter): { where: string; values: string[] } {
  const conditions: [string, string | undefined][] = [
    [`concat_ws(' ', t.slug, t.name, t.guid) ilike ?`, search && `%${search.replace(/[\\%_]/g, '\\$&')}%`],
    ['t.status = ?', status],
    ['s.name = ?', server],
    ["starts_with(coalesce(t.schema_version, 'between'), ?)", version],
  ];
  const given = conditions.flatMap(([sql, value]) => (value === undefined ? [] : [{ sql, value }]));
  const where = given.length > 0 ? `where ${given.map(({ sql }) => sql).join(' and ')}` : '';
  return { where, values: given.map(({ value }) => value) };
}

/** @throws {OperatorError} when there is no tenant with this slug */
export async function readTenant({ statements }: ControlStatements, slug: string): Promise<TenantSummary> {
  const [tenant] = await statements.execute<TenantSummary[]>(`${summaries} where t.slug = ?`, [slug]);
  if (!tenant) throw noSuchTenant(slug);
  return tenant;
}

/** @throws {OperatorError} that names the slugs of which no tenant was found */
export function requireFound(slugs: readonly string[], found: readonly { slug: string }[]): void {
  const unknown = slugs.filter(slug => !found.some(tenant => tenant.slug === slug));
  if (unknown.length > 0) throw noSuchTenant(unknown.join(', '));
}

export function tenantExists({ slug, status }: Pick<TenantSummary, 'slug' | 'status'>): OperatorError {
  return new OperatorError(`The tenant ${slug} exists already and is ${status}. Show it: bin/backoffice show ${slug}`);
}

export function noSuchTenant(slug: string): OperatorError {
  return new OperatorError(`There is no tenant ${slug}. List the tenants: bin/backoffice list`);
}

/** @throws {OperatorError} when there is no tenant with this slug */
async function readTenantWithHealth({ statements }: ControlStatements, slug: string): Promise<TenantWithHealth> {
  const { id } = await readTenant({ statements }, slug);
  const [row] = await statements.execute<(TenantSummary & StoredHealth & Pick<TenantWithHealth, 'checkedAt'>)[]>(
    `with ${await healthSql('select * from tenants where id = ?')}
     select ${columns}, ${healthColumns}, (select ${isoTime('made_at')} from last) as "checkedAt"
       from picked t join servers s on s.id = t.server_id left join health on health.id = t.id`,
    [id],
  );
  if (!row) throw noSuchTenant(slug); // it was purged meanwhile

  return { ...row, reasons: toReasons(row.reasons) };
}

/**
 * Returns one tenant with its features, its number of users, its databases beside the one that it has, and its keys
 * without their secrets, oldest key first.
 */
export async function showTenant({ statements }: ControlStatements, slug: string) {
  const tenant = await readTenantWithHealth({ statements }, slug);
  const [more] = await statements.execute<{ features: string[]; users: number }[]>(
    'select features, (select count(*)::int from users where tenant_id = t.id) as users from tenants t where id = ?',
    [tenant.id],
  );
  const keys = await listKeys({ statements }, slug);
  const otherDatabases = await statements.execute<{ database: string; server: string; state: string }[]>(
    `select database_name as database, s.name as server, state
       from tenant_databases d join servers s on s.id = server_id
      where tenant_id = ? and state not in ('current', 'gone') order by d.id`,
    [tenant.id],
  );
  return { ...tenant, features: more?.features ?? [], users: more?.users ?? 0, otherDatabases, keys };
}

/** Returns the keys of a tenant without their secrets, oldest first. */
export async function listKeys({ statements }: ControlStatements, slug: string) {
  const { id } = await readTenant({ statements }, slug);
  return statements.execute<{ kid: string; status: string; createdAt: string; retiredAt: string | null }[]>(
    `select kid, status, ${isoTime('created_at')} as "createdAt", ${isoTime('retired_at')} as "retiredAt"
       from signing_keys where tenant_id = ? order by created_at`,
    [id],
  );
}
