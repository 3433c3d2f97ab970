import type { Queryable } from '../../postgres/shared-connection.ts';
import { readKeys } from './data-keys.ts';
import { withBackupLease } from './lease.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** The one file of a target that is replaced: all data keys, each sealed by the master key. */
export const keyringFile = 'keyring.json';

/**
 * Writes the data keys to the target, because archives contain none. So a key that is destroyed here is destroyed in
 * the target too, and no copy of an archive brings it back. A copy of an earlier keyring would: see
 * docs/backup-format.md.
 */
export async function writeKeyring(control: Queryable, target: BackupTarget): Promise<void> {
  const keys = await readKeys(control);
  const document = {
    format: 1,
    keys: keys.map(({ tenant, fingerprint, sealed, createdAt }) => ({
      tenant,
      fingerprint,
      sealed: sealed.toString('base64'),
      createdAt: createdAt.toISOString(),
    })),
  };
  await target.write(keyringFile, oneChunk(Buffer.from(`${JSON.stringify(document, null, 1)}\n`)));
}

/**
 * Writes the keyring without the keys that were destroyed since.
 * @throws {OperatorError} when a backup run is in progress, which may write it with them
 */
export function removeDestroyedKeys(controlUrl: string, target: BackupTarget): Promise<void> {
  return withBackupLease(controlUrl, 'archives', control => writeKeyring(control, target));
}

async function* oneChunk(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}
