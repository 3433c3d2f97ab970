import type { BackupTarget } from './targets/backup-target.ts';

/** Writes a JSON document as a file of the target, or replaces it. */
export async function writeJson(target: BackupTarget, name: string, document: object): Promise<void> {
  await target.write(name, oneChunk(Buffer.from(`${JSON.stringify(document, null, 1)}\n`)));
}

/** Reads a file that has a JSON document. @returns undefined when there is no such file; null when it is no JSON */
export async function readJson(target: BackupTarget, name: string): Promise<unknown> {
  const source = await target.read(name);
  if (!source) return undefined;
  const chunks: Buffer[] = [];
  for await (const chunk of source) chunks.push(chunk);
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    return null;
  }
}

async function* oneChunk(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}
