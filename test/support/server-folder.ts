import { randomUUID } from 'node:crypto';
import { statfsSync } from 'node:fs';
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { stopServer } from '../../src/lib/embedded/postgres.ts';
import { useFolder } from './use.ts';

const memoryFolder = '/dev/shm'; // Linux only; a container often has 64 MB of it
/**
 * The suite takes at most 4 GB: seven workers with up to 60 databases of 8.5 MB, and 256 MB of
 * write-ahead log.
 */
const minFreeBytes = 5 * 1024 ** 3;

/** The folders in which the folders of a run may lie. */
export const folderParents = [memoryFolder, tmpdir()];

/**
 * Creates a folder for the data of a PostgreSQL server of the tests: in memory if enough is
 * free, otherwise in the temporary folder. A database is about 300 files, and `create database`
 * takes 0.03 s of CPU time in memory against 0.1 to 0.2 s on ext4. Its name has the number of
 * the run, whose guardian removes what the run leaves.
 */
export async function makeServerFolder(name: string): Promise<string> {
  const folder = serverFolder(name);
  await removeAbandoned(dirname(folder));
  await mkdir(folder, { mode: 0o700 });
  return folder;
}

/**
 * Removes a folder of `makeServerFolder` that nobody uses any more. A server that its last user
 * has left in the middle of a crash still runs: it is stopped first.
 */
export async function removeServerFolder(folder: string): Promise<void> {
  await stopServer(join(folder, 'postgres'));
  await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}

/**
 * Makes such a folder before the tests of a `describe`, and removes it after them.
 * @returns its path
 */
export function useServerFolder(name: string): string {
  return useFolder(serverFolder(name));
}

function serverFolder(name: string): string {
  const parent = hasFreeMemory() ? memoryFolder : tmpdir();
  return join(
    parent,
    `backoffice-${name}-${process.env.TEST_RUN ?? process.pid}-${randomUUID().slice(0, 8)}`,
  );
}

/** @param name without the path */
export function isFolderOfRun(name: string, run: string): boolean {
  return runOf(name) === run;
}

/** Returns the number of the run, which is the pid of its first process. */
function runOf(name: string): string | undefined {
  return /^backoffice-[a-z-]+-(\d+)-/.exec(name)?.[1];
}

function hasFreeMemory(): boolean {
  if (process.platform !== 'linux' || process.availableMemory() < minFreeBytes) return false;
  const { bavail, bsize } = statfsSync(memoryFolder);
  return bavail * bsize >= minFreeBytes;
}

/**
 * A run that takes longer is not one: its processes may be in another namespace, where nobody
 * here sees them.
 */
const maxRunMs = 3 * 3_600_000;

/**
 * Removes the folders of killed runs without a guardian (the guardian of a run can be killed
 * too), whose memory would stay in use. A server that still runs there ends then.
 */
async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const run = runOf(name);
    if (run === undefined || isRunning(Number(run))) continue;

    const folder = join(parent, name);
    const { birthtimeMs } = await stat(folder).catch(() => ({ birthtimeMs: Date.now() }));
    if (Date.now() - birthtimeMs < maxRunMs) continue;

    await rm(folder, { recursive: true, force: true }).catch(() => {}); // of another user
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
