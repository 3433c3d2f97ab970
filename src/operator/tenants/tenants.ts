import { Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { noSuchTenant } from './read-tenants.ts';

/** Returns a tenant with its server loaded. @throws {OperatorError} when there is none with this slug */
export async function findTenant({ control }: Installation, slug: string): Promise<Tenant> {
  const tenant = await control.em.fork().findOne(Tenant, { slug }, { populate: ['server'] });
  if (!tenant) throw noSuchTenant(slug);
  return tenant;
}
