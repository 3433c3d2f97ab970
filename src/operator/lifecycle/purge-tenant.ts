import type pg from 'pg';
import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { acquireLock, lockKey, lockSpaces, withLock } from '../../postgres/advisory-locks.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { operatorName } from '../command/operator-name.ts';
import type { DatabaseStep } from '../databases/database-protocol.ts';
import { readDatabases } from '../databases/database-store.ts';
import { dropCondemned } from '../databases/drop-condemned.ts';
import { runDatabases } from '../databases/run-databases.ts';
import { requirePurgeable } from '../tenants/purging.ts';
import { findTenant } from '../tenants/tenants.ts';
import type { UnendedPurge } from './purge-end.ts';
import { type PurgeRecord, purgeRecord, type SignedRecord, signRecord } from './purge-record.ts';

/**
 * Removes a deleted tenant, or one whose provisioning was never completed, permanently: all of its databases and login
 * roles, and its rows in the control database, except for one row in `purged_tenants`. Among them is the data key of its
 * archives: nobody can read them any more. It can be run again after it was killed at any point. Afterwards the slug is
 * free; the names of the databases are never used again. From its first step on nothing brings the tenant back.
 * @param onStep called before each step
 * @returns the signed record of what was destroyed, which is also in `purged_tenants`; or, if the tenant has archives,
 *   the purge whose record is signed when no backup target has a key of them either (`endPurge`)
 * @throws {OperatorError} when there is no such tenant, or it must be deleted first
 */
export async function purgeTenant(
  installation: Installation,
  slug: string,
  onStep: (step: DatabaseStep) => void = () => {},
): Promise<SignedRecord | UnendedPurge> {
  return withLock(installation.controlUrl, lockSpaces.slug, lockKey(slug), async control => {
    const { id } = await findTenant(installation, slug);
    await acquireLock(control, lockSpaces.tenant, id);
    const tenant = await findTenant(installation, slug);
    requirePurgeable(tenant);
    const { rowCount } = await control.query(
      `update tenants set purging_at = coalesce(purging_at, now())
        where id = $1 and status in ('deleted', 'provisioning')`,
      [id],
    );
    if (!rowCount) throw new OperatorError(`${slug} is not deleted any more: nothing was removed`);
    const databases = await readDatabases(control, id, ['reserved', 'filled', 'kept', 'current']);
    const context = { installation, control, tenant: { id, guid: tenant.guid, slug } };
    for (const target of databases)
      await runDatabases(context, 'drop', { target }, { onStep: (_, step) => onStep(step) });
    await dropCondemned(installation, control, context.tenant);
    return forget(control, tenant, installation.secrets);
  });
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
  return inTransaction(client, async () => {
    await client.query('select from installation for update');
    const record = purgeRecord(tenant, { purgedBy: operatorName(), ...(await readArchiveFacts(client, tenant)) });
    const signed = record.keyFingerprint === null ? signRecord(secrets, record) : undefined;
    await client.query(
      `insert into purged_tenants (id, guid, slug, name, database_name, created_at, purged_at, record, signature)
        select id, guid, slug, name, database_name, created_at, clock_timestamp(), $1, $2 from tenants where id = $3`,
      [signed?.text ?? JSON.stringify(record), signed?.signature, id],
    );
    await client.query(`update operator_actions set arguments = '{}', error = null where tenant_guid = $1`, [guid]);
    await client.query(`delete from tenant_databases where tenant_id = $1 and state = 'gone'`, [id]);
    await client.query('delete from tenants where id = $1', [id]);
    return signed ?? { id, record };
  });
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
