import { z } from 'zod';
import { runConcurrently } from '../command/run-fleet.ts';
import type { SealedKey } from './data-keys.ts';
import { readJson } from './target-files.ts';
import type { BackupTarget } from './targets/backup-target.ts';

const concurrentFiles = 8;

const keyContract = z.object({
  format: z.literal(1),
  tenant: z.uuid().nullable(),
  fingerprint: z.string(),
  sealed: z.base64().transform(text => Buffer.from(text, 'base64')),
  createdAt: z.iso.datetime().transform(text => new Date(text)),
});

/**
 * Reads the data keys of a target, each sealed by a master key, the newest first. A key that was sealed under two master
 * keys is there twice. A file that was changed counts as missing.
 */
export async function readTargetKeys(target: BackupTarget): Promise<SealedKey[]> {
  const files = await Array.fromAsync(target.list('keys/'));
  const keys = await runConcurrently(files, concurrentFiles, async ({ name }) => {
    return keyContract.safeParse(await readJson(target, name)).data; // undefined also for one that a purge has removed
  });
  return keys.filter(key => key !== undefined).sort((a, b) => b.createdAt.getTime() - a.createdAt.getTime());
}
