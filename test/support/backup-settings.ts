import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeIdentity } from '../../src/operator/backup/archive/identities.ts';
import { makeServerFolder } from './server-folder.ts';

type KeySettings = Record<'BACKUP_RECIPIENTS' | 'BACKUP_IDENTITY_FILE', string>;

let keys: Promise<KeySettings> | undefined;

/**
 * Returns the settings of a host that archives into a target, and that can open the archives.
 */
export async function backupSettings(
  target: string,
): Promise<KeySettings & Record<'BACKUP_TARGET', string>> {
  keys ??= makeKeys();

  return { BACKUP_TARGET: target, ...(await keys) };
}

async function makeKeys(): Promise<KeySettings> {
  const { identity, recipient } = await makeIdentity();
  const file = join(await makeServerFolder('identity'), 'identity.txt');
  await writeFile(file, `${identity}\n`, { mode: 0o600 });

  return { BACKUP_RECIPIENTS: recipient, BACKUP_IDENTITY_FILE: file };
}
