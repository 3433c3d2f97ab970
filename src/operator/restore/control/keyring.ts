import { z } from 'zod';
import { OperatorError } from '../../../operator-error.ts';
import type { SealedKey } from '../../backup/data-keys.ts';
import { keyringFile } from '../../backup/keyring-file.ts';
import type { BackupTarget } from '../../backup/targets/backup-target.ts';

const keyringContract = z.object({
  format: z.literal(1),
  keys: z.array(
    z.object({
      tenant: z.uuid().nullable(),
      fingerprint: z.string(),
      sealed: z.base64().transform(text => Buffer.from(text, 'base64')),
      createdAt: z.iso.datetime().transform(text => new Date(text)),
    }),
  ),
});

/** Reads the data keys of a target, each sealed by the master key. @throws {OperatorError} when there are none */
export async function readKeyring(target: BackupTarget): Promise<SealedKey[]> {
  const chunks: Buffer[] = [];
  for await (const chunk of (await target.read(keyringFile)) ?? []) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  if (text === '')
    throw new OperatorError(`${target.description} has no ${keyringFile}, without which no archive can be read`);
  const parsed = keyringContract.safeParse(parseJson(text));
  if (!parsed.success) throw new OperatorError(`The file ${keyringFile} of ${target.description} was changed`);
  return parsed.data.keys;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
