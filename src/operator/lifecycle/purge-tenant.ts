import type pg from 'pg';
import { usesAge } from '../../config/backup-format.ts';
import type { Tenant } from '../../control/control-entities.ts';
import type { ControlStatements, Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { acquireLock, lockKey, lockSpaces, withLock } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { operatorName } from '../command/operator-name.ts';
import type { DatabaseStep } from '../databases/database-protocol.ts';
import { readDatabases } from '../databases/database-store.ts';
import { dropCondemned, findLeftRoles, type LeftRole } from '../databases/drop-database.ts';
import { namesUnlessAway, readHoldings } from '../databases/foreign-objects.ts';
import { runDatabases } from '../databases/run-databases.ts';
import { requirePurgeable } from '../tenants/purging.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import { findTenant } from '../tenants/tenants.ts';
import { type PurgeRecord, purgeRecord, type SignedRecord, signRecord, type UnsignedRecord } from './purge-record.ts';

/**
 * Removes a deleted tenant, or one whose provisioning was never completed, permanently: all of its databases and login
 * roles, and its rows in the control database, except for one row in `purged_tenants`. Among them is the data key of
 * its archives: nobody can read them any more. It can be run again after it was killed at any point. Afterwards the
 * slug is free; the names of the databases are never used again. From its first step on nothing brings the tenant back.
 * @param onStep called before each step
 * @param onLeft called for each login role that somebody has granted rights in other databases: it stays, without a
 *   password
 * @returns the signed record of what was destroyed, which is also in `purged_tenants`; or, if the tenant has archives,
 *   the purge whose record is signed when no backup target has a key of them either (`endPurge`)
 * @throws {OperatorError} when there is no such tenant, or it must be deleted first
 */
export function purgeTenant(
  installation: Installation,
  slug: string,
  onStep: (step: DatabaseStep) => void = () => {},
  onLeft: (role: LeftRole) => void = () => {},
): Promise<SignedRecord | UnendedPurge> {
  return destroyTenant(installation, slug, { onStep, onLeft }, (control, tenant) =>
    forget(control, tenant, installation.secrets),
  );
}

/** A tenant whose databases and rows are gone. Its archives are removed after that (`removePurgedArchives`). */
export interface PurgedTenant {
  readonly guid: string;
}

/**
 * Removes a tenant as `purgeTenant` does, but not its archives.
 * @param keepsArchives true: they stay, as the operator wants; false: they are recorded as left until they are removed
 * @param onLeft as `purgeTenant`
 */
export function purgeWithoutArchives(
  installation: Installation,
  slug: string,
  keepsArchives: boolean,
  onLeft: (role: LeftRole) => void,
): Promise<PurgedTenant> {
  return destroyTenant(installation, slug, { onStep: () => {}, onLeft }, async (control, { id, guid }) => {
    await inTransaction(control, async () => {
      await control.query(
        `insert into purged_tenants (id, guid, slug, name, database_name, created_at, purged_at, archives)
            select id, guid, slug, name, database_name, created_at, clock_timestamp(), $2 from tenants where id = $1`,
        [id, keepsArchives ? 'kept' : 'left'],
      );
      await forgetRows(control, id, guid);
    });
    return { guid };
  });
}

/** @param end removes the rows of the tenant, whose databases are gone */
function destroyTenant<T>(
  installation: Installation,
  slug: string,
  { onStep, onLeft }: { readonly onStep: (step: DatabaseStep) => void; readonly onLeft: (role: LeftRole) => void },
  end: (control: pg.Client, tenant: Tenant) => Promise<T>,
): Promise<T> {
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
    const condemned = await readDatabases(control, id, ['condemned']);
    const context = { installation, control, tenant: { id, guid: tenant.guid, slug } };
    for (const target of databases)
      await runDatabases(context, 'drop', { target }, { onStep: (_, step) => onStep(step) });
    await dropCondemned(installation, control, context.tenant);
    for (const left of await findLeftRoles(installation, [...databases, ...condemned])) onLeft(left);

    return end(control, tenant);
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
    await client.query(`update archives set state = 'removing' where tenant_guid = $1`, [guid]);
    await forgetRows(client, id, guid);
    return signed ?? { id, record };
  });
}

async function forgetRows(client: pg.Client, id: number, guid: string): Promise<void> {
  await client.query(`update operator_actions set arguments = '{}', error = null where tenant_guid = $1`, [guid]);
  await client.query(`delete from tenant_databases where tenant_id = $1 and state = 'gone'`, [id]);
  await client.query('delete from tenants where id = $1', [id]);
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

/** A purge after which a backup target may still have the key of the tenant's archives. */
interface UnendedPurge {
  readonly id: number;
  readonly record: UnsignedRecord;
}

/** Returns the oldest unended purge of a tenant that had this slug; undefined without one. */
export async function findUnendedPurge(
  { statements }: ControlStatements,
  slug: string,
): Promise<UnendedPurge | undefined> {
  const [row] = await statements.execute<{ id: number; record: string }[]>(
    `select id::float8, record from purged_tenants
      where slug = ? and record is not null and signature is null order by id limit 1`,
    [slug],
  );
  return row && { id: row.id, record: JSON.parse(row.record) };
}

/**
 * Ends a purge: has the key removed from the backup target, and signs the record, which says that it is destroyed.
 * Each target that has archives of the tenant in the ledger needs a call of its own.
 * @param removeKey removes the key from a target, whose description it returns; it can be repeated
 * @param isLost true: the other targets do not exist any more, and the record names them
 * @throws {OperatorError} when another target may still have the key
 */
export async function endPurge(
  { statements, secrets }: Pick<Installation, 'statements' | 'secrets'>,
  { id, record }: UnendedPurge,
  removeKey: () => Promise<string>,
  isLost: boolean,
): Promise<SignedRecord> {
  const { guid, slug } = record.tenant;
  const target = await removeKey();
  const keyRemovedFrom = [...new Set([...record.keyRemovedFrom, target])];
  await statements.execute('update purged_tenants set record = ? where id = ? and signature is null', [
    JSON.stringify({ ...record, keyRemovedFrom }),
    id,
  ]);
  const targets = await statements.execute<{ target: string }[]>(
    'select distinct target from archives where tenant_guid = ? order by target',
    [guid],
  );
  const keyLeftIn = targets.map(row => row.target).filter(each => !keyRemovedFrom.includes(each));
  if (keyLeftIn.length > 0 && !isLost)
    throw new OperatorError(
      `${slug} is removed, and ${target} has no key of its archives, but ${keyLeftIn.join(' and ')} may still have it` +
        `. Run the purge again with that BACKUP_TARGET: bin/backoffice purge ${slug} ` +
        '(if it does not exist any more: --lost-targets)',
    );
  const signed = signRecord(secrets, {
    ...record,
    keyRemovedFrom,
    keyLeftIn,
    purgedAt: new Date().toISOString(),
    purgedBy: operatorName(),
  });
  await statements.execute(
    `update purged_tenants set record = ?, signature = decode(?, 'base64') where id = ? and signature is null`,
    [signed.text, signed.signature.toString('base64'), id],
  );
  return signed;
}

/** Returns the tenants with this slug that are purged, and whose archives are left. */
export async function findLeftArchives({ statements }: ControlStatements, slug: string): Promise<PurgedTenant[]> {
  return statements.execute(
    `select guid from purged_tenants
      where slug = ? and archives = 'left' and not exists (select from tenants t where t.slug = purged_tenants.slug)
      order by id`,
    [slug],
  );
}

/** What a purge removes. */
interface PurgePlan {
  slug: string;
  guid: string;
  /** Null for a purge that has removed everything but the key in the backup target. */
  database: string | null;
  server: string | null;
  users: number;
  /** What somebody else has made in its databases, each with the name of the database. */
  holds: string[];
  /** Archives that nobody can read afterwards. */
  archives: number;
}

/**
 * Returns what a purge of a tenant removes, and changes nothing.
 * @throws {OperatorError} when `purgeTenant` would refuse it
 */
export async function planPurge(installation: Installation, slug: string): Promise<PurgePlan> {
  if (usesAge() && (await findLeftArchives(installation, slug)).length > 0)
    return { slug, guid: '', database: null, server: null, users: 0, holds: [], archives: 0 };
  const unended = await findUnendedPurge(installation, slug);
  if (unended) {
    const { tenant, archives } = unended.record;
    return { slug, guid: tenant.guid, database: null, server: null, users: 0, holds: [], archives: archives.length };
  }
  const tenant = await readTenant(installation, slug);
  requirePurgeable(tenant);
  const { guid, id, database, server } = tenant;
  const [counts] = await installation.statements.execute<{ users: number; archives: number }[]>(
    `select (select count(*)::int from users where tenant_id = ?) as users,
            ${usesAge() ? 'coalesce((select archives from archive_folders where tenant_guid = ?), 0)' : '(select count(*)::int from archives where tenant_guid = ?)'} as archives`,
    [id, guid],
  );
  const holds = await listHeld(installation, id);
  return { slug, guid, database, server, users: counts?.users ?? 0, holds, archives: counts?.archives ?? 0 };
}

async function listHeld(installation: Installation, tenantId: number): Promise<string[]> {
  return withConnection(installation.controlUrl, async control => {
    const held: string[] = [];
    for (const each of await readDatabases(control, tenantId, ['reserved', 'filled', 'kept', 'current', 'condemned'])) {
      const names = await namesUnlessAway(async () => (await readHoldings(installation, each, undefined)).all);
      held.push(...names.map(name => `${name} in ${each.database}`));
    }
    return held;
  });
}
