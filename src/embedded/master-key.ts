import { randomBytes } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseMasterKey } from '../config-values.ts';

/** The master key of the embedded default: made once, and kept beside the data that it seals. */
export async function embeddedMasterKey(folder: string): Promise<Buffer> {
  const path = join(folder, 'master.key');
  await mkdir(folder, { recursive: true });
  const making = `${path}.${process.pid}`;
  await writeFile(making, randomBytes(32).toString('base64'), { mode: 0o600 });
  // A link appears whole or not at all, and never replaces a key that is there.
  await link(making, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  await rm(making);
  const key = parseMasterKey((await readFile(path, 'utf8')).trim());
  if (!key) throw new Error(`${path} does not hold a key of 32 bytes`);
  return key;
}
