import type { EntityManager } from '@mikro-orm/postgresql';
import type pg from 'pg';
import { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { operatorName } from '../operator-name.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { type PurgeRecord, type SignedRecord, signPurgeRecord } from './purge-record.ts';
import { findTenant } from './tenants.ts';

/** @throws {OperatorError} when the tenant must be deleted before it can be purged */
export function requirePurgeable({ slug, status }: Tenant): void {
  if (status !== 'deleted' && status !== 'provisioning')
    throw new OperatorError(`${slug} is ${status}. Delete it first: npx backoffice delete ${slug}`);
}

/**
 * Removes a deleted tenant, or one whose provisioning was never completed, permanently: its database, its login role,
 * and its rows in the control database, except for one row in `purged_tenants`. Among them is the data key of its
 * archives: nobody can read them any more. It can be run again after it was killed at any point. Afterwards the slug is
 * free; the name of the database is never used again.
 * @returns the signed record of what was destroyed, which is also in `purged_tenants`
 * @throws {OperatorError} when there is no such tenant, or it must be deleted first
 */
export async function purgeTenant(installation: Installation, slug: string): Promise<SignedRecord> {
  const { control, controlUrl, secrets, servers } = installation;
  return withConnection(controlUrl, async client => {
    await acquireLock(client, lockSpaces.slug, lockKey(slug));
    const { id } = await findTenant(installation, slug);
    await acquireLock(client, lockSpaces.tenant, id);
    const tenant = await findTenant(installation, slug);
    requirePurgeable(tenant);
    await requireNoMove(client, tenant);
    await withConnection(servers.adminUrl(tenant.server), async admin => {
      if (!(await ownsDatabase(admin, databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName), tenant)))
        return;
      // Dropping the database ends the sessions of the role, which only a superuser or a member of the role may do.
      const { rowCount } = await admin.query('select from pg_roles where rolname = $1', [tenant.roleName]);
      if (rowCount) await admin.query(`grant ${quoteIdentifier(tenant.roleName)} to current_user`);
      await admin.query(`drop database if exists ${quoteIdentifier(tenant.databaseName)} with (force)`);
      await admin.query(`drop role if exists ${quoteIdentifier(tenant.roleName)}`);
    });
    return control.em.fork().transactional(async em => {
      const facts = await readArchiveFacts(em, tenant);
      const record = signPurgeRecord(secrets, tenant, { purgedBy: operatorName(), ...facts });
      await em.execute(
        `insert into purged_tenants (id, guid, slug, name, database_name, created_at, record, signature)
          select id, guid, slug, name, database_name, created_at, ?, ? from tenants where id = ?`,
        [record.text, record.signature, tenant.id],
      );
      await em.execute(`update operator_actions set arguments = '{}', error = null where tenant_guid = ?`, [
        tenant.guid,
      ]);
      await em.nativeDelete(Tenant, { id: tenant.id });
      return record;
    });
  });
}

/** Reads which key and which archives of a tenant are destroyed with it. */
async function readArchiveFacts(
  em: EntityManager,
  { id, guid }: Tenant,
): Promise<Pick<PurgeRecord, 'keyFingerprint' | 'archives'>> {
  const [facts] = await em.execute<Pick<PurgeRecord, 'keyFingerprint' | 'archives'>[]>(
    `select (select fingerprint from backup_keys where tenant_id = ?) as "keyFingerprint",
            (select coalesce(json_agg(json_build_object('id', id, 'target', target, 'file', file) order by snapshot_at),
                             '[]') from archives where tenant_guid = ?) as archives`,
    [id, guid],
  );
  return facts ?? { keyFingerprint: null, archives: [] };
}

/** @throws {OperatorError} when the tenant has another database, on the server that it was or will be moved from */
async function requireNoMove(control: pg.Client, { id, slug }: Tenant): Promise<void> {
  const { rows } = await control.query<{ state: string }>(
    `select state from tenant_moves where tenant_id = $1 and state not in ('settled', 'aborted')`,
    [id],
  );
  if (!rows[0]) return;
  const command = rows[0].state === 'switched' || rows[0].state === 'settling' ? 'settle' : 'abort';
  throw new OperatorError(
    `${slug} has two databases, because of a move. Drop the other one first: npx backoffice move ${command} ${slug}`,
  );
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
