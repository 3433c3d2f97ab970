import { z } from 'zod';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { readKeys, type SealedKey } from './data-keys.ts';
import { readJson, writeJson } from './target-files.ts';
import type { BackupTarget } from './targets/backup-target.ts';

const concurrentFiles = 8;

/*
 * The data keys of a target, each in a file of its own, because archives contain none:
 *
 *   K1 (once) A key is written when the target lacks it. No file has two keys, so no run takes one away by writing
 *      others.
 *   K2 (by name) Keys are removed one by one: that of a tenant which `purged_tenants` names, after the mark of its
 *      purge is in the target; and an earlier key of the control database, which this control database has destroyed.
 *   K3 (gone is gone) A run that has written keys checks that the control database still has them, and removes the
 *      others again. A purge removes its key after its commit. So no purged key stays, whichever comes last.
 *   K4 (unfinished) A run and a purge remove also what killed runs have begun to write. A run whose file a purge
 *      removes while it is written finds that the control database has destroyed the key.
 */

/**
 * Writes the data keys that the target lacks, sealed under the present master key, and removes those of purged tenants.
 * Without a previous master key, it also removes what is sealed under former ones.
 */
export async function storeKeys(control: Queryable, target: BackupTarget, secrets: SecretBox): Promise<void> {
  await target.removeUnfinished('keys/');
  const names = new Set(await Array.fromAsync(target.list('keys/'), ({ name }) => name));
  const keys = await readKeys(control);
  const missing = keys.filter(key => !names.has(fileOf(key, secrets)));
  await runConcurrently(missing, concurrentFiles, key =>
    writeKey(target, secrets, key).catch(async error => {
      if ((await readKeys(control)).some(({ fingerprint }) => fingerprint === key.fingerprint)) throw error;
    }),
  );
  if (missing.length > 0) await removeDestroyedKeys(control, target, missing);
  await removePurgedKeys(control, target, secrets);
  if (!secrets.previous) await removeFormerSeals(target, secrets, keys, names);
}

const tenantKey = /^keys\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\//;

/** Returns the folder of the keys of a tenant; null: of the control database. */
const folderOf = (tenant: string | null): string => `keys/${tenant ?? 'control'}/`;

/** Returns the name of the file of a key, which names the master key too, and tells nothing about it. */
function fileOf({ tenant, fingerprint }: SealedKey, secrets: SecretBox): string {
  const masterKey = secrets.mac('backup_key_file').toString('hex', 0, 8);
  return `${folderOf(tenant)}${fingerprint}-${masterKey}.json`;
}

async function writeKey(target: BackupTarget, secrets: SecretBox, key: SealedKey): Promise<void> {
  const owner = owners.backupKey(key.tenant, key.fingerprint);
  const sealed = secrets.seal(secrets.open(key.sealed, owner), owner);
  const { tenant, fingerprint, createdAt } = key;
  await writeJson(target, fileOf(key, secrets), {
    ...{ format: 1, tenant, fingerprint, sealed: sealed.toString('base64'), createdAt: createdAt.toISOString() },
  });
}

/** Removes the keys again that were destroyed while they were written (K3). */
async function removeDestroyedKeys(control: Queryable, target: BackupTarget, written: readonly SealedKey[]) {
  const left = new Set((await readKeys(control)).map(({ fingerprint }) => fingerprint));
  for (const { tenant, fingerprint } of written)
    if (!left.has(fingerprint)) await removeKey(target, tenant, fingerprint);
}

async function removeFormerSeals(
  target: BackupTarget,
  secrets: SecretBox,
  keys: readonly SealedKey[],
  names: ReadonlySet<string>,
): Promise<void> {
  const present = new Map(keys.map(key => [`${folderOf(key.tenant)}${key.fingerprint}`, fileOf(key, secrets)]));
  for (const name of names) {
    const file = present.get(name.slice(0, name.lastIndexOf('-')));
    if (file !== undefined && file !== name) await target.remove(name);
  }
}

/** Removes a data key from the target. */
export async function removeKey(target: BackupTarget, tenant: string | null, fingerprint: string): Promise<void> {
  for await (const { name } of target.list(`${folderOf(tenant)}${fingerprint}-`)) await target.remove(name);
}

/**
 * Removes the keys of purged tenants from the target, so that nobody can read their archives any more: first the purge
 * is marked, then the key is removed. A killed one is ended by the next call.
 * @param tenant the guid of one whose key may be unfinished
 */
export async function removePurgedKeys(
  control: Queryable,
  target: BackupTarget,
  secrets: SecretBox,
  tenant?: string,
): Promise<void> {
  const names = await Array.fromAsync(target.list('keys/'), ({ name }) => name);
  const { rows: purged } = await control.query<{ guid: string }>(
    'select guid from purged_tenants where guid = any ($1::uuid[])',
    [[...names.flatMap(name => tenantKey.exec(name)?.[1] ?? []), ...(tenant ? [tenant] : [])]],
  );
  for (const { guid } of purged) {
    await writePurgeMark(target, secrets, guid);
    for (const name of names) if (name.startsWith(folderOf(guid))) await target.remove(name);
    await target.removeUnfinished(folderOf(guid));
  }
}

const keyContract = z.object({
  format: z.literal(1),
  tenant: z.uuid().nullable(),
  fingerprint: z.string(),
  sealed: z.base64().transform(text => Buffer.from(text, 'base64')),
  createdAt: z.iso.datetime().transform(text => new Date(text)),
});

/**
 * Reads the data keys of a target, each sealed by a master key, the newest first. A key that was sealed under two
 * master keys is there twice. A file that was changed counts as missing.
 */
export async function readTargetKeys(target: BackupTarget): Promise<SealedKey[]> {
  const files = await Array.fromAsync(target.list('keys/'));
  const keys = await runConcurrently(files, concurrentFiles, async ({ name }) => {
    return keyContract.safeParse(await readJson(target, name)).data; // undefined also for one that a purge has removed
  });
  return keys.filter(key => key !== undefined).sort((a, b) => b.createdAt.getTime() - a.createdAt.getTime());
}

/*
 * A mark in the target says that a tenant was purged: an earlier state of the control database, in which the tenant is
 * still there, learns from it that the tenant does not come back.
 */

const purpose = 'purged_tenant';
const markContract = z.object({ tenant: z.uuid(), code: z.base64().transform(text => Buffer.from(text, 'base64')) });

/** Writes that a tenant was purged, with a code that only the master key makes. */
async function writePurgeMark(target: BackupTarget, secrets: SecretBox, tenant: string): Promise<void> {
  const code = secrets.mac(purpose, tenant).toString('base64');
  await writeJson(target, `purged/${tenant}.json`, { format: 1, tenant, code });
}

/**
 * Reads which tenants the target knows as purged, each with whether this master key has made the code: another code may
 * be a forgery, or older than a change of the master key.
 */
export async function readPurgeMarks(target: BackupTarget, secrets: SecretBox): Promise<Map<string, boolean>> {
  const marks = new Map<string, boolean>();
  for await (const { name } of target.list('purged/')) {
    const { data } = markContract.safeParse(await readJson(target, name));
    if (data && name === `purged/${data.tenant}.json`)
      marks.set(data.tenant, secrets.verifyMac(data.code, purpose, data.tenant));
  }
  return marks;
}
