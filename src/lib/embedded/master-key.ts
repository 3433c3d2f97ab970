import { randomBytes } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseMasterKey } from '../config/config-values.ts';
import { OperatorError } from '../log/operator-error.ts';
import { pathExists } from './cluster.ts';

/**
 * Returns the master key of an installation with an embedded PostgreSQL: `master.key` in its
 * data folder, beside the data that the key seals. Creates the file before there are such data.
 * @throws {OperatorError} when the file is lost, or does not hold a key of 32 bytes
 */
export async function embeddedMasterKey(folder: string): Promise<Buffer> {
  const path = join(folder, 'master.key');
  await mkdir(folder, { recursive: true });
  if ((await pathExists(join(folder, 'postgres'))) && !(await pathExists(path))) {
    throw new OperatorError(
      `${path} is missing: restore the file from your backup, or set the key as MASTER_KEY`,
    );
  }

  // Not the pid: a process in another container may have the same one, and would write another
  // key into this file.
  const temporary = `${path}.${randomBytes(8).toString('hex')}`;
  await writeFile(temporary, randomBytes(32).toString('base64'), { mode: 0o600, flag: 'wx' });

  // link() creates the whole file or nothing, and never replaces an existing key.
  await link(temporary, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  await rm(temporary);

  const key = parseMasterKey((await readFile(path, 'utf8')).trim());
  if (!key) {
    throw new OperatorError(
      `${path} does not hold a key of 32 bytes: restore the file from your backup`,
    );
  }
  return key;
}
