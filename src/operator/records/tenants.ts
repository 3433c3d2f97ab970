import type pg from 'pg';
import { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { noSuchTenant } from './read-tenants.ts';

/**
 * Returns a tenant with its server loaded.
 * @throws {OperatorError} when there is none with this slug
 */
export async function findTenant({ control }: Installation, slug: string): Promise<Tenant> {
  const { em } = await control();
  const tenant = await em.fork().findOne(Tenant, { slug }, { populate: ['server'] });
  if (!tenant) throw noSuchTenant(slug);
  return tenant;
}

/**
 * Runs work on a connection to the database of a tenant, with the operator's rights.
 * `tenant.server` must be loaded.
 */
export async function connectTenant<T>(
  { servers }: Pick<Installation, 'servers'>,
  { server, databaseName }: Pick<Tenant, 'server' | 'databaseName'>,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(servers.adminUrl(server, databaseName), work);
}
