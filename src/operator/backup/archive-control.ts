import { randomUUID } from 'node:crypto';
import type { Installation } from '../../installation.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { createControlKey, createKeyring, readKeys } from './data-keys.ts';
import { writeKeyring } from './keyring-file.ts';
import { planArchives } from './ledger.ts';
import { archiveFile, writeArchiveOf } from './recorded-archive.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/**
 * Tables of the control database whose rows are not archived: migrations, which the control database of a new machine
 * has itself; data keys, which are in the keyring; and what running processes share.
 */
export const notArchived = ['migrations', 'backup_keys', 'processes', 'connection_grants', 'connection_servers'];

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
    await writeKeyring(control, target);
  }
  const key = createKeyring(await readKeys(control), secrets).current(null);
  const id = randomUUID();
  const file = archiveFile(null, id, new Date());
  const database = decodeURIComponent(new URL(controlUrl).pathname.slice(1));
  const entry = { id, tenant: null, slug: null, target: target.description, file, database, server: 'control' };
  await planArchives(control, [{ ...entry, keyFingerprint: key.fingerprint, proof: null }]);
  const source = { url: controlUrl, tenant: null, server: 'control', database, schemaFingerprint: null };
  const written = await writeArchiveOf(control, { ...source, except: notArchived }, { id, file, key }, target);
  const { rowCount } = await control.query('delete from backup_keys where tenant_id is null and fingerprint <> $1', [
    key.fingerprint,
  ]);
  if (rowCount) await writeKeyring(control, target);
  return { file, ...written };
}

/** Returns whether a tenant was purged since the newest key of the control database was made. */
async function isKeyOutdated(control: Queryable): Promise<boolean> {
  const { rowCount } = await control.query(
    `select from purged_tenants
      where purged_at >= (select max(created_at) from backup_keys where tenant_id is null) limit 1`,
  );
  return rowCount === 1;
}
