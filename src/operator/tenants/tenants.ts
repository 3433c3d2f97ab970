import { SigningKey, Tenant } from '../../control/fleet-entities.ts';
import { User } from '../../control/user-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';

/** A tenant as the operator sees it. */
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

/** The tenant's row without anything secret. Its server must be loaded. */
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

export async function listTenants({ control }: Installation): Promise<TenantSummary[]> {
  const tenants = await control.em.fork().findAll(Tenant, { populate: ['server'], orderBy: { slug: 'asc' } });
  return tenants.map(summarise);
}

export async function findTenant({ control }: Installation, slug: string): Promise<Tenant> {
  const tenant = await control.em.fork().findOne(Tenant, { slug }, { populate: ['server'] });
  if (!tenant) throw new OperatorError(`there is no tenant ${slug}; see: npm run -s tenant -- list`);
  return tenant;
}

/** One tenant with its keys (not their secrets), features and the number of its users. */
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

/** The people of a tenant. */
export async function listUsers(installation: Installation, slug: string) {
  const tenant = await findTenant(installation, slug);
  const users = await installation.control.em
    .fork()
    .find(User, { tenant }, { populate: ['role'], orderBy: { email: 'asc' } });
  return users.map(user => ({
    guid: user.guid,
    email: user.email,
    firstName: user.firstName,
    lastName: user.lastName,
    role: user.role.name,
    scope: user.scope,
    entityId: user.entityId ?? null,
    state: user.disabledAt ? 'disabled' : user.confirmedAt ? 'active' : 'unconfirmed',
  }));
}
