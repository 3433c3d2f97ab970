import type pg from 'pg';
import { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { findTenant } from './tenants.ts';

/** @throws {OperatorError} when the tenant must be deleted before it can be purged */
export function requirePurgeable({ slug, status }: Tenant): void {
  if (status !== 'deleted' && status !== 'provisioning')
    throw new OperatorError(`${slug} is ${status}. Delete it first: npm run -s tenant -- delete ${slug}`);
}

/**
 * Removes a deleted tenant, or one whose provisioning was never completed, permanently: its database, its login role,
 * and its rows in the control database, except for one row in `purged_tenants`. It can be run again after it was
 * killed at any point. Afterwards the slug is free; the name of the database is never used again.
 * @throws {OperatorError} when there is no such tenant, or it must be deleted first
 */
export async function purgeTenant(installation: Installation, slug: string): Promise<void> {
  const { control, controlUrl, servers } = installation;
  await withConnection(controlUrl, async client => {
    await acquireLock(client, lockSpaces.slug, lockKey(slug));
    const { id } = await findTenant(installation, slug);
    await acquireLock(client, lockSpaces.tenant, id);
    const tenant = await findTenant(installation, slug);
    requirePurgeable(tenant);
    await withConnection(servers.adminUrl(tenant.server), async admin => {
      if (!(await ownsDatabase(admin, databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName), tenant)))
        return;
      // Dropping the database ends the sessions of the role, which only a superuser or a member of the role may do.
      const { rowCount } = await admin.query('select from pg_roles where rolname = $1', [tenant.roleName]);
      if (rowCount) await admin.query(`grant ${quoteIdentifier(tenant.roleName)} to current_user`);
      await admin.query(`drop database if exists ${quoteIdentifier(tenant.databaseName)} with (force)`);
      await admin.query(`drop role if exists ${quoteIdentifier(tenant.roleName)}`);
    });
    await control.em.fork().transactional(async em => {
      await em.execute(
        `insert into purged_tenants (id, guid, slug, name, database_name, created_at)
          select id, guid, slug, name, database_name, created_at from tenants where id = ?`,
        [tenant.id],
      );
      await em.nativeDelete(Tenant, { id: tenant.id });
    });
  });
}

/**
 * Returns whether the database and the login role with the tenant's names belong to the tenant. Another installation on
 * the same server may use the same names; its database must not be dropped.
 */
async function ownsDatabase(admin: pg.Client, url: string, { guid, roleName, databaseName }: Tenant): Promise<boolean> {
  const { rows } = await admin.query<{ owner: string | null; open: boolean | null }>(
    `select (select shobj_description(oid, 'pg_authid') from pg_roles where rolname = $1) as owner,
            (select datallowconn and datconnlimit <> -2 from pg_database where datname = $2) as open`,
    [roleName, databaseName],
  );
  const owner = rows[0]?.owner ?? null;
  if (owner !== null) return owner === guid;
  if (!rows[0]?.open) return true;
  const identity = await withConnection(url, readSchemaState);
  return identity.guid === null || identity.guid === guid;
}
