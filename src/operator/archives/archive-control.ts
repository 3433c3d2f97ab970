import { randomUUID } from 'node:crypto';
import { databaseNameOf } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { archiveDatabase } from './archive-database.ts';
import { archiveFile } from './archive-name.ts';
import { createControlKey, createKeyring, readKeys } from './data-keys.ts';
import { completeArchive, planArchives } from './ledger.ts';
import { removeKey, storeKeys } from './target-keys.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/**
 * Tables of the control database whose rows are not archived: migrations, which the control database of a new machine
 * has itself; data keys, which the target has; what running processes share; and what was found of the servers.
 */
export const notArchived = ['migrations', 'backup_keys', 'processes', 'doctor_reports'];

/**
 * Archives the control database. Its archives have users, password hashes and sessions of all tenants, so they must not
 * outlive a purged tenant: after a purge, this one is sealed with a new key, and the keys of all earlier ones are
 * destroyed. No copy of them can be read then.
 */
export async function archiveControl(
  { controlUrl, secrets }: Installation,
  control: Queryable,
  target: BackupTarget,
): Promise<{ file: string; rows: number; bytes: number }> {
  if (await isKeyOutdated(control)) {
    await createControlKey(control, secrets);
    await storeKeys(control, target, secrets);
  }
  const key = createKeyring(await readKeys(control), secrets).current(null);
  await control.query('set synchronous_commit = on'); // the ledger has this archive before the target has its file
  const id = randomUUID();
  const file = archiveFile(null, id, new Date());
  const database = databaseNameOf(controlUrl);
  const entry = { id, tenant: null, slug: null, target: target.description, file, database, server: 'control' };
  await planArchives(control, [{ ...entry, keyFingerprint: key.fingerprint, proof: null }]);
  const source = { url: controlUrl, tenant: null, server: 'control', database, schemaFingerprint: null };
  const written = await archiveDatabase({ ...source, except: notArchived }, { id, file, key }, target);
  await completeArchive(control, id, written);
  await removeFormerKeys(control, target, key.fingerprint);
  return { file, rows: written.rows, bytes: written.bytes };
}

/** Destroys the earlier keys: first in the target, so that a killed run leaves none there. */
async function removeFormerKeys(control: Queryable, target: BackupTarget, present: string): Promise<void> {
  const { rows } = await control.query<{ fingerprint: string }>(
    'select fingerprint from backup_keys where tenant_id is null and fingerprint <> $1',
    [present],
  );
  for (const { fingerprint } of rows) {
    await removeKey(target, null, fingerprint);
    await control.query('delete from backup_keys where tenant_id is null and fingerprint = $1', [fingerprint]);
  }
}

/**
 * Returns whether a tenant was purged since the newest key of the control database was made. A purge is committed after
 * its `purged_at`, but no key is made in between: both lock the row of `installation`.
 */
async function isKeyOutdated(control: Queryable): Promise<boolean> {
  const { rowCount } = await control.query(
    `select from purged_tenants
      where purged_at >= (select max(created_at) from backup_keys where tenant_id is null) limit 1`,
  );
  return rowCount === 1;
}
