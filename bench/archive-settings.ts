import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeIdentity } from '../src/operator/backup/archive/identities.ts';

/**
 * Makes a target for archives and an identity in a folder.
 * @returns the settings of one host that makes archives and can open them
 */
export async function makeArchiveSettings(folder: string) {
  const { identity, recipient } = await makeIdentity();
  const identityFile = join(folder, 'identity.txt');
  await writeFile(identityFile, `${identity}\n`, { mode: 0o600 });
  const target = join(folder, 'archives');
  await mkdir(target, { mode: 0o700 });

  return {
    BACKUP_TARGET: target,
    BACKUP_RECIPIENTS: recipient,
    BACKUP_IDENTITY_FILE: identityFile,
  };
}
