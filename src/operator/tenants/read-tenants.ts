import type { TenantStatus } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';

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

const summaries = `
  select t.id::float8, t.guid, t.slug, t.name, t.app_id as "appId", t.app_url as "appUrl",
         t.database_name as database, s.name as server, t.status, t.isolated, t.schema_version as "schemaVersion", ${isoTime('t.created_at')} as "createdAt"
    from tenants t join servers s on s.id = t.server_id`;

/** The columns that a list of tenants can be sorted by. */
export const tenantSorts = ['slug', 'name', 'status', 'version', 'server', 'created'] as const;

const sortColumns: Record<(typeof tenantSorts)[number], string> = {
  slug: 't.slug',
  name: 't.name',
  status: 't.status',
  version: 't.schema_version',
  server: 's.name',
  created: 't.created_at',
};

/** Which tenants a list has, and in which order; what is undefined does not limit it. */
export interface TenantFilter {
  /** A part of the slug, the name or the guid, in any case. */
  search?: string | undefined;
  status?: string | undefined;
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
): Promise<TenantSummary[]> {
  const { sort = 'slug', limit = null, offset = 0 } = filter;
  const column = sortColumns[sort.replace(/^-/, '') as keyof typeof sortColumns];
  const { where, values } = conditionsOf(filter);
  const direction = sort.startsWith('-') ? 'desc' : 'asc';
  return statements.execute(
    `${summaries} ${where} order by ${column} ${direction} nulls last, t.slug limit ? offset ?`,
    [...values, limit, offset],
  );
}

/** Returns how many tenants the filter selects. */
export async function countTenants({ statements }: ControlStatements, filter: TenantFilter): Promise<number> {
  const { where, values } = conditionsOf(filter);
  const [row] = await statements.execute<{ count: number }[]>(
    `select count(*)::int as count from tenants t join servers s on s.id = t.server_id ${where}`,
    values,
  );
  return row?.count ?? 0;
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

/**
 * Returns one tenant with its features, its number of users, its databases beside the one that it has, and its keys
 * without their secrets, oldest key first.
 */
export async function showTenant({ statements }: ControlStatements, slug: string) {
  const tenant = await readTenant({ statements }, slug);
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
