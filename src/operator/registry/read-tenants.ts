import type { TenantStatus } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { conditionOf, where as whereAll } from '../../lib/postgres/statement.ts';
import {
  type Health,
  type HealthReason,
  healthColumns,
  healthOf,
  healthSql,
  type StoredHealth,
  toReasons,
} from './tenant-health.ts';

/** SQL of the aliases among rows of `tenant_slugs`, each with the day on which it ends. */
export const textOfAliases = `coalesce(string_agg(
  slug || ' until ' || to_char(alias_until at time zone 'UTC', 'YYYY-MM-DD'), ', ' order by slug), '')`;

/**
 * SQL of the aliases of a tenant.
 * @param guid SQL of its guid
 */
export function aliasesText(guid: string): string {
  return `(select ${textOfAliases} from tenant_slugs where tenant_guid = ${guid} and alias_until > now())`;
}

/** A tenant as the command line shows it. */
export interface TenantSummary {
  id: number;
  guid: string;
  slug: string;
  /** Its former slugs that lead to it, and the days on which that ends. */
  aliases: string | null;
  name: string;
  appId: string;
  /** The address that links in its mails lead to; null: that of all tenants. */
  appUrl: string | null;
  /** The further origins of pages with passkeys; null: none. */
  passkeyOrigins: string | null;
  database: string;
  server: string;
  status: TenantStatus;
  /** True for a tenant that sends no mail, and refuses its legacy clients and programs. */
  isolated: boolean;
  schemaVersion: string | null;
  createdAt: string;
}

/** A tenant with both of its marks: the decision about it (`status`), and its health. */
export interface TenantWithHealth extends TenantSummary {
  health: Health;
  /** The reasons why the tenant is not well, the worst first. */
  reasons: HealthReason[];
  /** The time at which doctor last checked all tenants; null: never. */
  checkedAt: string | null;
}

const columns = `
  t.id::float8, t.guid, t.slug, nullif(${aliasesText('t.guid')}, '') as aliases, t.name, t.app_id as "appId", t.app_url as "appUrl",
  nullif(array_to_string(t.passkey_origins, ', '), '') as "passkeyOrigins",
  t.database_name as database, s.name as server, t.status, t.isolated, t.schema_version as "schemaVersion",
  ${isoTime('t.created_at')} as "createdAt"`;

const summaries = `select ${columns} from tenants t join servers s on s.id = t.server_id`;

/** The states in which a tenant can be. */
export const tenantStates = ['provisioning', 'active', 'suspended', 'deleted'] as const;

/** The columns that a list of tenants can be sorted by. */
export const tenantSorts = [
  'slug',
  'name',
  'status',
  'health',
  'version',
  'server',
  'created',
] as const;

const sortColumns: Record<(typeof tenantSorts)[number], string> = {
  slug: 't.slug',
  name: 't.name',
  status: 't.status',
  health: 'coalesce(health.rank, 0)',
  version: 't.schema_version',
  server: 's.name',
  created: 't.created_at',
};

/** The choice and the order of tenants for a list; an undefined field does not limit it. */
export interface TenantFilter {
  /** A part of the slug, of a former one, of the name or the guid, in any case. */
  search?: string | undefined;
  status?: string | undefined;
  health?: string | undefined;
  server?: string | undefined;
  /**
   * The beginning of a schema version; `between`: tenants that have none at the moment, as
   * during a migration.
   */
  version?: string | undefined;
  /** One of `tenantSorts`, with `-` in front for the other direction. */
  sort?: string | undefined;
  /** The maximum number of tenants after the first ones. */
  limit?: number;
  offset?: number;
}

/** Returns the tenants that the filter selects, by default all, ordered by slug. */
export async function listTenants(
  control: ControlStatements,
  filter: TenantFilter = {},
): Promise<TenantWithHealth[]> {
  if (asksForHealth(filter)) {
    const { ids } = await findByHealth(control, filter);
    return readTenants(control, ids);
  }

  const { limit = null, offset = 0 } = filter;
  const { where, values } = conditionsOf(filter);
  const order = orderOf(filter);
  const picked = `select t.* from ${tenantsOnServers} ${where} ${order}
                   limit $${values.push(limit)} offset $${values.push(offset)}`;

  return readWithHealth(control, picked, values, order);
}

/** Returns a part of the tenants that the filter selects, and how many it selects. */
export async function pageTenants(
  control: ControlStatements,
  filter: TenantFilter,
): Promise<{ tenants: TenantWithHealth[]; total: number }> {
  if (asksForHealth(filter)) {
    const { ids, total } = await findByHealth(control, filter);
    return { tenants: await readTenants(control, ids), total };
  }

  const { where, values } = conditionsOf(filter);
  const { rows } = await control.statements.query<{ total: number }>(
    `select count(*)::int as total from ${tenantsOnServers} ${where}`,
    values,
  );
  const [row] = rows;

  return { tenants: await listTenants(control, filter), total: row?.total ?? 0 };
}

const tenantsOnServers = 'tenants t join servers s on s.id = t.server_id';

/** True for a filter that needs the health of all tenants, not only of those that it shows. */
function asksForHealth({ health, sort }: TenantFilter): boolean {
  return health !== undefined || columnOf(sort) === sortColumns.health;
}

function columnOf(sort = 'slug'): string {
  return sortColumns[sort.replace(/^-/, '') as keyof typeof sortColumns];
}

function orderOf({ sort }: TenantFilter): string {
  return `order by ${columnOf(sort)} ${sort?.startsWith('-') ? 'desc' : 'asc'} nulls last, t.slug`;
}

/**
 * Returns the ids of a part of the tenants that the filter selects, in their order, and how
 * many it selects. Only the rank of each tenant is computed, and only once.
 */
async function findByHealth(
  { statements }: ControlStatements,
  filter: TenantFilter,
): Promise<{ ids: readonly number[]; total: number }> {
  const { limit = null, offset = 0, health } = filter;
  const { where, values } = conditionsOf(filter);
  const picked = `select t.* from ${tenantsOnServers} ${where}`;
  const isSo =
    health === undefined ? 'true' : `${healthOf('health.rank')} = $${values.push(health)}`;
  const { rows } = await statements.query<{ ids: number[]; total: number }>(
    `with ${await healthSql(picked)},
     selected as materialized (
       select t.id, row_number() over (${orderOf(filter)}) as place
         from picked t join servers s on s.id = t.server_id
         left join (select id, rank from health) health on health.id = t.id
        where ${isSo})
     select array(select id::float8 from selected order by place limit $${values.push(limit)} offset $${values.push(offset)}) as ids,
            (select count(*)::int from selected) as total`,
    values,
  );
  const [found] = rows;

  return found ?? { ids: [], total: 0 };
}

/** Returns tenants in the order of their ids. */
function readTenants(
  control: ControlStatements,
  ids: readonly number[],
): Promise<TenantWithHealth[]> {
  const list = `{${ids.join(',')}}`;

  return readWithHealth(
    control,
    'select * from tenants where id = any ($1::bigint[])',
    [list],
    'order by array_position($1::bigint[], t.id)',
  );
}

/**
 * @param picked SQL of the tenants
 * @param values of both texts
 */
async function readWithHealth(
  { statements }: ControlStatements,
  picked: string,
  values: unknown[],
  order: string,
): Promise<TenantWithHealth[]> {
  const { rows } = await statements.query<
    TenantSummary & StoredHealth & Pick<TenantWithHealth, 'checkedAt'>
  >(
    `with ${await healthSql(picked)}
     select ${columns}, ${healthColumns}, (select ${isoTime('made_at')} from last) as "checkedAt"
       from picked t join servers s on s.id = t.server_id left join health on health.id = t.id ${order}`,
    values,
  );

  return rows.map(({ reasons, ...tenant }) => ({ ...tenant, reasons: toReasons(reasons) }));
}

/** The tenants of a fleet by health, and the ones that need attention most. */
export interface FleetHealth {
  counts: Record<Health, number>;
  /** The time at which doctor last checked all of them; null: never. */
  checkedAt: string | null;
  /**
   * Tenants that are not well for a reason of their own: the worst first, and of equals those
   * that have been so for longest.
   */
  troubled: TenantWithHealth[];
  /** The number of such tenants, also of those that are not listed. */
  total: number;
}

/**
 * Reads the health of the fleet. The tenants of a server that does not respond are counted and
 * not listed, because the reason is the server's. So are tenants that are only not checked yet.
 * @param limit how many are listed
 */
export async function readFleetHealth(
  control: ControlStatements,
  limit: number,
): Promise<FleetHealth> {
  const { rows } = await control.statements.query<
    Omit<FleetHealth, 'troubled'> & { shown: number[] }
  >(
    `with ${await healthSql('select * from tenants')},
     ranked_tenants as materialized (
       select slug, id, rank, since, not is_of_server and (rank > 1 or has_done) as is_troubled
         from picked left join (select id, rank, since, is_of_server, has_done from health) health using (id))
     select (select json_object_agg(health, tenants) from (
               select ${healthOf('rank')} as health, count(*) as tenants from ranked_tenants group by 1) c) as counts,
            (select ${isoTime('made_at')} from last) as "checkedAt",
            (select count(*)::int from ranked_tenants where is_troubled) as total,
            array(select id::float8 from ranked_tenants where is_troubled
                   order by rank desc, since nulls last, slug limit $1) as shown`,
    [limit],
  );
  const [row] = rows;
  const { counts, shown = [], checkedAt = null, total = 0 } = row ?? {};

  return {
    counts: { well: 0, unchecked: 0, warning: 0, unwell: 0, ...counts },
    checkedAt,
    troubled: await readTenants(control, shown),
    total,
  };
}

function conditionsOf({ search, status, server, version }: TenantFilter): {
  where: string;
  values: unknown[];
} {
  const values: unknown[] = [];
  const where = whereAll(
    [
      conditionOf(
        `concat_ws(' ', t.slug, t.name, t.guid, (select string_agg(slug, ' ') from tenant_slugs where tenant_guid = t.guid)) ilike ?`,
        search && `%${search.replace(/[\\%_]/g, '\\$&')}%`,
      ),
      conditionOf('t.status = ?', status),
      conditionOf('s.name = ?', server),
      conditionOf("starts_with(coalesce(t.schema_version, 'between'), ?)", version),
    ],
    values,
  );

  return { where, values };
}

/** @throws {OperatorError} when this is neither the slug nor an alias of a tenant */
export async function readTenant(
  { statements }: ControlStatements,
  slug: string,
): Promise<TenantSummary> {
  const { rows } = await statements.query<TenantSummary>(
    `${summaries} where t.guid = tenant_named($1)`,
    [slug],
  );
  const [tenant] = rows;
  if (!tenant) throw noSuchTenant(slug);
  return tenant;
}

/** @throws {OperatorError} that names the slugs of which no tenant was found */
export function requireFound(slugs: readonly string[], found: readonly { slug: string }[]): void {
  const unknown = slugs.filter(slug => !found.some(tenant => tenant.slug === slug));
  if (unknown.length > 0) throw noSuchTenant(unknown.join(', '));
}

export function tenantExists({
  slug,
  status,
}: Pick<TenantSummary, 'slug' | 'status'>): OperatorError {
  return new OperatorError(
    `The tenant ${slug} exists already and is ${status}. ${existingSteps(slug)}`,
  );
}

/** Returns what to do about a tenant that is not made, because it is there. */
export function existingSteps(slug: string): string {
  return (
    `Show it: bin/backoffice show ${slug}. If the password that was printed is lost, set another ` +
    `one: bin/backoffice user password ${slug} EMAIL`
  );
}

export function noSuchTenant(slug: string): OperatorError {
  return new OperatorError(`There is no tenant ${slug}. List the tenants: bin/backoffice list`);
}

/**
 * Returns one tenant with its features, its number of users, its databases beside the one that
 * it has, and its keys without their secrets, oldest key first.
 */
export async function showTenant({ statements }: ControlStatements, slug: string) {
  const { id } = await readTenant({ statements }, slug);
  const [tenant] = await readTenants({ statements }, [id]);
  if (!tenant) throw noSuchTenant(slug); // it was purged meanwhile

  const { rows } = await statements.query<{ features: string[]; users: number }>(
    `select features, (select count(*)::int from users where tenant_id = t.id and kind = 'person') as users
       from tenants t where id = $1`,
    [tenant.id],
  );
  const [more] = rows;
  const keys = await listKeys({ statements }, slug);
  const { rows: otherDatabases } = await statements.query<{
    database: string;
    server: string;
    state: string;
  }>(
    `select database_name as database, s.name as server, state
       from tenant_databases d join servers s on s.id = server_id
      where tenant_id = $1 and state not in ('current', 'gone') order by d.id`,
    [tenant.id],
  );
  return {
    ...tenant,
    features: more?.features ?? [],
    users: more?.users ?? 0,
    otherDatabases,
    keys,
  };
}

/** Returns the keys of a tenant without their secrets, oldest first. */
export async function listKeys({ statements }: ControlStatements, slug: string) {
  const { id } = await readTenant({ statements }, slug);
  const { rows } = await statements.query<{
    kid: string;
    status: string;
    createdAt: string;
    retiredAt: string | null;
  }>(
    `select kid, status, ${isoTime('created_at')} as "createdAt", ${isoTime('retired_at')} as "retiredAt"
       from signing_keys where tenant_id = $1 order by created_at`,
    [id],
  );

  return rows;
}
