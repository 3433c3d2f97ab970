import { SigningKey, Tenant } from '../../control/fleet-entities.ts';
import { User } from '../../control/user-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';

/** A tenant as the command line shows it. */
export interface TenantSummary {
  id: number;
  guid: string;
  slug: string;
  name: string;
  appId: string;
  database: string;
  server: string;
  status: string;
  schemaVersion: string | null;
  createdAt: string;
}

/** Returns the fields of a tenant that are not secret. `tenant.server` must be loaded. */
export function summarise(tenant: Tenant): TenantSummary {
  return {
    id: tenant.id,
    guid: tenant.guid,
    slug: tenant.slug,
    name: tenant.name,
    appId: tenant.appId,
    database: tenant.databaseName,
    server: tenant.server.name,
    status: tenant.status,
    schemaVersion: tenant.schemaVersion ?? null,
    createdAt: tenant.createdAt.toISOString(),
  };
}

/** Returns all tenants, ordered by slug. */
export async function listTenants({ control }: Installation): Promise<TenantSummary[]> {
  const tenants = await control.em.fork().findAll(Tenant, { populate: ['server'], orderBy: { slug: 'asc' } });
  return tenants.map(summarise);
}

/** Returns a tenant with its server loaded. @throws {OperatorError} when there is none with this slug */
export async function findTenant({ control }: Installation, slug: string): Promise<Tenant> {
  const tenant = await control.em.fork().findOne(Tenant, { slug }, { populate: ['server'] });
  if (!tenant) throw new OperatorError(`There is no tenant ${slug}. List the tenants: npm run -s tenant -- list`);
  return tenant;
}

/** Returns one tenant with its features, its number of users, and its keys without their secrets, oldest key first. */
export async function showTenant(installation: Installation, slug: string) {
  const tenant = await findTenant(installation, slug);
  const em = installation.control.em.fork();
  const keys = await em.find(SigningKey, { tenant }, { orderBy: { createdAt: 'asc' } });
  return {
    ...summarise(tenant),
    features: tenant.features,
    users: await em.count(User, { tenant }),
    keys: keys.map(({ kid, status, createdAt }) => ({ kid, status, createdAt: createdAt.toISOString() })),
  };
}
