import type pg from 'pg';
import { Tenant } from '../../control/control-entities.ts';
import type { Installation, ServerAccess } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { noSuchTenant } from './read-tenants.ts';

/**
 * Returns a tenant with its server loaded.
 * @throws {OperatorError} when this is neither a slug nor an alias of one
 */
export async function findTenant({ control }: Installation, slug: string): Promise<Tenant> {
  const tenant = await findNamedTenant({ control }, slug);
  if (!tenant) throw noSuchTenant(slug);
  return tenant;
}

/** Returns the tenant that a slug or an alias names, with its server loaded; null: none. */
export async function findNamedTenant(
  { control }: Pick<Installation, 'control'>,
  slug: string,
): Promise<Tenant | null> {
  const em = (await control()).em.fork();
  const [named] = await em.execute<{ guid: string | null }[]>('select tenant_named(?) as guid', [
    slug,
  ]);

  return named?.guid ? em.findOne(Tenant, { guid: named.guid }, { populate: ['server'] }) : null;
}

/**
 * Checks, after the tenant was locked, that the slug with which it was found still leads to it.
 * Without the check, a command could go on with another tenant that got the slug while the
 * command waited.
 * @throws {OperatorError} when it does not
 */
export async function requireNamed(
  control: pg.Client,
  tenantId: number,
  slug: string,
): Promise<void> {
  const { rowCount } = await control.query(
    'select from tenants where id = $1 and guid = tenant_named($2)',
    [tenantId, slug],
  );
  if (!rowCount) {
    throw new OperatorError(
      `The slug ${slug} was changed, or its tenant purged, meanwhile: nothing was done. Look for the tenant: bin/backoffice list`,
    );
  }
}

/**
 * Runs work on a connection to the database of a tenant, with the operator's rights.
 * `tenant.server` must be loaded.
 */
export async function connectTenant<T>(
  { servers }: ServerAccess,
  { server, databaseName }: Pick<Tenant, 'server' | 'databaseName'>,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(servers.adminUrl(server, databaseName), work);
}

/**
 * Checks, in the transaction of a change, that the connected database is the one that a tenant
 * is served from: a change of a former one would be lost. No run closes the database before the
 * transaction ends.
 * @throws {OperatorError} when it is closed
 */
export async function holdOpen(
  client: pg.Client,
  { guid, slug }: Pick<Tenant, 'guid' | 'slug'>,
): Promise<void> {
  const { rowCount } = await client.query('select from tenant_identity where guid = $1 for share', [
    guid,
  ]);
  if (!rowCount) throw closedError(slug);
}

/** Returns the error of a command that meets a database of a tenant which is closed. */
export function closedError(slug: string): OperatorError {
  return new OperatorError(
    `The database of ${slug} is closed, as during a move or a swap: nothing was changed. Run the command again. If ` +
      `it stays closed: bin/backoffice databases prune ${slug}`,
  );
}
