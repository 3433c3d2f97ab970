import { z } from 'zod';
import { runConcurrently } from '../command/run-concurrently.ts';
import type { SealedKey } from './data-keys.ts';
import { readJson } from './target-files.ts';
import type { BackupTarget } from './targets/backup-target.ts';

const concurrentFiles = 8;

/** All keys in one file, as earlier builds wrote them. */
export const formerKeyring = 'keyring.json';

const keyContract = z.object({
  tenant: z.uuid().nullable(),
  fingerprint: z.string(),
  sealed: z.base64().transform(text => Buffer.from(text, 'base64')),
  createdAt: z.iso.datetime().transform(text => new Date(text)),
});
const keyFileContract = keyContract.extend({ format: z.literal(1) });
const keyringContract = z.object({ format: z.literal(1), keys: z.array(keyContract) });

/**
 * Reads the data keys of a target, each sealed by a master key, the newest first. A key that was sealed under two master
 * keys is there twice. A file that was changed counts as missing.
 */
export async function readTargetKeys(target: BackupTarget): Promise<SealedKey[]> {
  const names: string[] = [];
  for await (const { name } of target.list('keys/')) names.push(name);
  const keys = await runConcurrently(names, concurrentFiles, name => read(target, name, keyFileContract));
  const found = [...keys.filter(key => key !== undefined), ...(await readFormerKeyring(target))];
  return found.sort((a, b) => b.createdAt.getTime() - a.createdAt.getTime());
}

/** Reads the keys in the one file of earlier builds. */
export async function readFormerKeyring(target: BackupTarget): Promise<SealedKey[]> {
  return (await read(target, formerKeyring, keyringContract))?.keys ?? [];
}

/** @returns undefined when there is no such file, because a purge has removed it meanwhile, or when it is no key */
async function read<T>(target: BackupTarget, name: string, contract: z.ZodType<T>): Promise<T | undefined> {
  const document = await readJson(target, name);
  if (document === undefined) return undefined;
  return contract.safeParse(document).data;
}
