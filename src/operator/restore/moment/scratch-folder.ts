import { constants } from 'node:fs';
import { copyFile, mkdir, open, readdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { findServer } from '../../../embedded/pid-file.ts';
import { stopServer } from '../../../embedded/server-process.ts';
import { type BaseBackup, type BaseFolder, unfinished } from './base-folder.ts';
import { removeOldLeases } from './base-leases.ts';
import { databaseOf } from './copy-cluster.ts';

const maxRemovalRetries = 10;

/** The databases that PostgreSQL itself makes have OIDs below this; they are small. */
const firstUserOid = 16_384;

/**
 * Makes the data directory of a scratch server: the files of all databases together, and those of the wanted databases.
 * Of the other databases, large files are holes of the same length and small ones are missing: the write-ahead log that
 * is replayed on them makes them again, page by page, and nobody reads them.
 * @param wanted the OIDs of the wanted databases
 */
export async function makeScratchData(
  folder: BaseFolder,
  base: BaseBackup,
  wanted: ReadonlySet<number>,
  target: string,
): Promise<void> {
  const source = join(folder.base(base.id), 'files');
  const isWanted = (path: string): boolean => {
    const oid = databaseOf(join(path, 'file'));
    return oid === undefined || oid < firstUserOid || wanted.has(oid);
  };
  const walk = async (path: string): Promise<void> => {
    await mkdir(join(target, path), { mode: 0o700 });
    if (!isWanted(path)) return;
    for (const entry of await readdir(join(source, path), { withFileTypes: true })) {
      const name = join(path, entry.name);
      if (entry.isDirectory()) await walk(name);
      else await copyFile(join(source, name), join(target, name), constants.COPYFILE_FICLONE);
    }
  };
  await walk('');
  for (const { largeFiles } of base.databases)
    for (const [path, bytes] of largeFiles) if (!isWanted(dirname(path))) await makeHole(join(target, path), bytes);
  // The settings of the server would let the scratch server archive into the folder of the server.
  await rm(join(target, 'postgresql.auto.conf'), { force: true });
}

async function makeHole(path: string, bytes: number): Promise<void> {
  const file = await open(path, 'w', 0o600);
  await file.truncate(bytes).finally(() => file.close());
}

/** The name of a scratch folder begins with the id of the process that uses it. */
export function scratchName(): string {
  return `${process.pid}-${Date.now().toString(36)}`;
}

/** Removes what killed restores have left: scratch servers with their folders, and what they have announced. */
export async function removeLeftovers(folder: BaseFolder): Promise<void> {
  await removeOldLeases(folder);
  for (const name of await readdir(folder.root).catch(() => [])) {
    const pid = Number(/^scratch-(\d+)-/.exec(name)?.[1]);
    if (!pid || isRunning(pid)) continue;
    const path = join(folder.root, name);
    const data = join(path, 'data');
    if (await findServer(data)) await stopServer(data);
    await rm(path, { recursive: true, force: true });
  }
}

/**
 * Removes base backups that a killed run has not completed, or not wholly removed. A run that was paused and has lost its
 * lock may write into its folder meanwhile: a folder that is not empty after all is emptied again.
 */
export async function removeUnfinished(folder: BaseFolder): Promise<void> {
  for (const name of await readdir(folder.root))
    if (name.endsWith(unfinished))
      await rm(join(folder.root, name), { recursive: true, force: true, maxRetries: maxRemovalRetries });
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
