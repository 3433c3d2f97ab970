import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { BackupTarget } from './targets/backup-target.ts';

/** Writes a JSON document as a file of the target, or replaces it. */
export async function writeJson(target: BackupTarget, name: string, document: object): Promise<void> {
  await target.write(name, Readable.from([Buffer.from(`${JSON.stringify(document, null, 1)}\n`)]));
}

/** Reads a file that has a JSON document. @returns undefined when there is no such file; null when it is no JSON */
export async function readJson(target: BackupTarget, name: string): Promise<unknown> {
  const source = await target.read(name);
  if (!source) return undefined;
  const contents = await text(source);
  try {
    return JSON.parse(contents);
  } catch {
    return null;
  }
}
