import type pg from 'pg';
import type { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import type { MoveState } from '../move/move-protocol.ts';
import { newEpoch } from '../move/move-store.ts';
import { commandToEnd } from '../move/read-moves.ts';
import { condemnDatabase, nobody } from '../move/tenant-guard.ts';
import { operatorName } from '../operator-name.ts';
import { roleStamps } from '../provisioning/role-stamp.ts';
import { type RemovalStep, type RestoreEffects, takeSteps } from '../restore/restore-protocol.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import type { UnendedPurge } from './purge-end.ts';
import { type PurgeRecord, purgeRecord, type SignedRecord, signRecord } from './purge-record.ts';
import { findTenant } from './tenants.ts';

/** @throws {OperatorError} when the tenant must be deleted before it can be purged, or a move or swap of it to end */
export async function requirePurgeable(control: pg.Client, tenant: Tenant): Promise<void> {
  const { slug, status } = tenant;
  if (status !== 'deleted' && status !== 'provisioning')
    throw new OperatorError(`${slug} is ${status}. Delete it first: npx backoffice delete ${slug}`);
  await requireNoMove(control, tenant);
  await requireNoSwap(control, tenant);
}

/**
 * Removes a deleted tenant, or one whose provisioning was never completed, permanently: its database, its login role,
 * and its rows in the control database, except for one row in `purged_tenants`. Among them is the data key of its
 * archives: nobody can read them any more. It can be run again after it was killed at any point. Afterwards the slug is
 * free; the name of the database is never used again. From its first step on nothing brings the tenant back.
 * @param onStep called before each step
 * @returns the signed record of what was destroyed, which is also in `purged_tenants`; or, if the tenant has archives,
 *   the purge whose record is signed when no backup target has a key of them either (`endPurge`)
 * @throws {OperatorError} when there is no such tenant, or it must be deleted first
 */
export async function purgeTenant(
  installation: Installation,
  slug: string,
  onStep: (step: RemovalStep) => void = () => {},
): Promise<SignedRecord | UnendedPurge> {
  return withConnection(installation.controlUrl, async client => {
    await acquireLock(client, lockSpaces.slug, lockKey(slug));
    const { id } = await findTenant(installation, slug);
    await acquireLock(client, lockSpaces.tenant, id);
    const tenant = await findTenant(installation, slug);
    await requirePurgeable(client, tenant);
    const removal = await createRemoval(installation, client, tenant);
    await takeSteps({ state: 'aside', fence: 'none' }, 'none', removal.effects, onStep);
    return removal.record();
  });
}

/**
 * Returns the steps of the removal of a tenant, as `restoreProtocol` orders them, and what it has recorded at its end.
 * @param client holds the locks of the tenant and of its slug
 */
export async function createRemoval(
  installation: Installation,
  client: pg.Client,
  tenant: Tenant,
): Promise<{ effects: RestoreEffects<RemovalStep>; record: () => SignedRecord | UnendedPurge }> {
  const { secrets, servers } = installation;
  const { server, databaseName, roleName, guid, id, slug } = tenant;
  const adminUrl = servers.adminUrl(server);
  const url = databaseUrl(adminUrl, databaseName);
  const epoch = await newEpoch(client, [id]);
  const ifOwned = (work: (admin: pg.Client, isOpen: boolean) => Promise<void>): Promise<void> =>
    withConnection(adminUrl, async admin => {
      const { isOwned, isOpen } = await readOwnership(admin, url, tenant);
      if (isOwned) await work(admin, isOpen);
    });
  let record: SignedRecord | UnendedPurge | undefined;
  const effects: RestoreEffects<RemovalStep> = {
    'condemn database': async () => {
      const { rowCount } = await client.query(
        `update tenants set purging_at = coalesce(purging_at, now())
          where id = $1 and status in ('deleted', 'provisioning')`,
        [id],
      );
      if (!rowCount) throw new OperatorError(`${slug} is not deleted any more: nothing was removed`);
      await ifOwned(async (_, isOpen) => {
        if (!isOpen) return;
        await withConnection(url, database => condemnDatabase(database, { epoch }, guid)).catch(error => {
          // A killed restore leaves one without tables, which no process serves.
          if (sqlState(error) !== '42P01') throw error;
        });
      });
    },
    'drop database': () =>
      ifOwned(async admin => {
        // Dropping the database ends the sessions of the role, which only a superuser or a member of the role may do.
        const { rowCount } = await admin.query('select from pg_roles where rolname = $1', [roleName]);
        if (rowCount) await admin.query(`grant ${quoteIdentifier(roleName)} to current_user`);
        await admin.query(`drop database if exists ${quoteIdentifier(databaseName)} with (force)`);
        await admin.query(`drop role if exists ${quoteIdentifier(roleName)}`);
      }),
    'forget tenant': async () => {
      record = await forget(client, tenant, secrets);
    },
  };
  return {
    effects,
    record: () => {
      if (!record) throw new Error('the tenant is not removed yet');
      return record;
    },
  };
}

/**
 * Removes the rows of a tenant from the control database, except for one row in `purged_tenants`. The lock lets no key
 * of the control database be made from `purged_at` to the commit: a key that is newer than `purged_at` seals no archive
 * with this tenant.
 */
async function forget(
  client: pg.Client,
  tenant: Tenant,
  secrets: Installation['secrets'],
): Promise<SignedRecord | UnendedPurge> {
  const { id, guid } = tenant;
  await client.query('begin');
  try {
    await client.query('select from installation for update');
    const record = purgeRecord(tenant, { purgedBy: operatorName(), ...(await readArchiveFacts(client, tenant)) });
    const signed = record.keyFingerprint === null ? signRecord(secrets, record) : undefined;
    await client.query(
      `insert into purged_tenants (id, guid, slug, name, database_name, created_at, purged_at, record, signature)
        select id, guid, slug, name, database_name, created_at, clock_timestamp(), $1, $2 from tenants where id = $3`,
      [signed?.text ?? JSON.stringify(record), signed?.signature, id],
    );
    await client.query(`update operator_actions set arguments = '{}', error = null where tenant_guid = $1`, [guid]);
    await client.query('delete from tenants where id = $1', [id]);
    await client.query('commit');
    return signed ?? { id, record };
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}

/** Reads which key and which archives of a tenant are destroyed with it. */
async function readArchiveFacts(
  client: pg.Client,
  { id, guid }: Tenant,
): Promise<Pick<PurgeRecord, 'keyFingerprint' | 'archives'>> {
  const { rows } = await client.query<Pick<PurgeRecord, 'keyFingerprint' | 'archives'>>(
    `select (select fingerprint from backup_keys where tenant_id = $1) as "keyFingerprint",
            (select coalesce(json_agg(json_build_object('id', id, 'target', target, 'file', file) order by snapshot_at),
                             '[]') from archives where tenant_guid = $2) as archives`,
    [id, guid],
  );
  return rows[0] ?? { keyFingerprint: null, archives: [] };
}

/** @throws {OperatorError} when the tenant has another database, on the server that it was or will be moved from */
async function requireNoMove(control: pg.Client, { id, slug }: Tenant): Promise<void> {
  const { rows } = await control.query<{ state: MoveState }>(
    `select state from tenant_moves where tenant_id = $1 and state not in ('settled', 'aborted')`,
    [id],
  );
  if (!rows[0]) return;
  throw new OperatorError(
    `${slug} has two databases, because of a move. End it first: ${commandToEnd(rows[0].state, slug)}`,
  );
}

/** @throws {OperatorError} while a swap with the tenant that it was restored from needs its database to end */
async function requireNoSwap(control: pg.Client, { id, slug }: Tenant): Promise<void> {
  const { rows } = await control.query<{ source: string }>(
    `select s.slug as source from restored_tenants r join tenants s on s.id = r.source_id
      where r.tenant_id = $1 and complete_at is not null
        and exists (select from tenant_fences where tenant_guid = s.guid)`,
    [id],
  );
  if (rows[0])
    throw new OperatorError(
      `A swap of ${rows[0].source} with ${slug} has not ended. End it first: npx backoffice restore back ${slug}`,
    );
}

/**
 * Returns whether the database and the login role with the tenant's names belong to the tenant, and whether the database
 * can be opened. Another installation on the same server may use the same names; its database must not be dropped.
 */
async function readOwnership(
  admin: pg.Client,
  url: string,
  { guid, roleName, databaseName }: Tenant,
): Promise<{ isOwned: boolean; isOpen: boolean }> {
  const { rows } = await admin.query<{ owner: string | null; open: boolean | null }>(
    `select (select shobj_description(oid, 'pg_authid') from pg_roles where rolname = $1) as owner,
            (select datallowconn and datconnlimit <> -2 from pg_database where datname = $2) as open`,
    [roleName, databaseName],
  );
  const owner = rows[0]?.owner ?? null;
  const isOpen = rows[0]?.open === true;
  if (owner !== null) return { isOwned: roleStamps(guid).includes(owner), isOpen };
  if (!isOpen) return { isOwned: true, isOpen };
  const { guid: found } = await withConnection(url, readSchemaState);
  return { isOwned: found === null || found === guid || found === nobody, isOpen };
}
