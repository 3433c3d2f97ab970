import { randomBytes } from 'node:crypto';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../../operator-error.ts';
import type { BaseBackup, BaseFolder } from './base-folder.ts';

/**
 * Files in the folder of a server that announce what a process does with its base backups: `reading-<id>-…` that it
 * restores from one, `removing-…` that it removes some. A control database is not needed, because it may be what is
 * restored. Each name ends with the process, so that what a killed one has left does not count.
 *
 *   L1 (announce first) A reader announces its base backup, and then looks for removers. A remover announces itself, and
 *      then looks for readers. So of the two, at least one sees the other.
 *   L2 (readers) A reader that sees a remover waits for its end. Then it announces the base backup that it finds, if
 *      that is another one, and looks again. So it begins only with one that exists and that it has announced.
 *   L3 (removers) A remover keeps each base backup that it sees announced, and the write-ahead log since.
 *
 * A reader that a remover has not seen has announced itself after the remover looked, and so after the remover was
 * announced: by L2 it waits for it.
 */
const leaseName = /^(?:reading-(?<base>[0-9TZ]+)|removing)-(?<pid>\d+)-(?<start>\d+)-[0-9a-f]+$/;

interface Lease {
  readonly name: string;
  /** The id of the base backup that is read; undefined: some are removed. */
  readonly base: string | undefined;
  readonly pid: number;
  readonly isHeld: boolean;
}

const maxRemovalMs = 60_000;
const pollMs = 50;

/**
 * Runs `work` on a base backup, which no other command removes meanwhile, nor the write-ahead log since.
 * @param choose returns the base backup that is there now. @throws {OperatorError} when there is none
 * @throws {OperatorError} as `choose`, or when a removal does not end
 */
export async function withBaseLease<T>(
  folder: BaseFolder,
  choose: () => Promise<BaseBackup>,
  work: (base: BaseBackup) => Promise<T>,
): Promise<T> {
  const { id } = await choose();
  const chosen = await withLease(folder, `reading-${id}`, async () => {
    await waitForRemovers(folder);
    const base = await choose();
    return base.id === id ? { result: await work(base) } : undefined;
  });
  return chosen ? chosen.result : withBaseLease(folder, choose, work);
}

/**
 * Runs `work` while no restore begins to read a base backup.
 * @param work receives the processes that read base backups already, by the id of what they read
 */
export async function withRemovalLease<T>(
  folder: BaseFolder,
  work: (readers: ReadonlyMap<string, number>) => Promise<T>,
): Promise<T> {
  return withLease(folder, 'removing', async () => {
    const held = (await readLeases(folder)).filter(({ isHeld }) => isHeld);
    return work(new Map(held.flatMap(({ base, pid }) => (base === undefined ? [] : [[base, pid] as const]))));
  });
}

/** Removes what killed processes have announced. */
export async function removeOldLeases(folder: BaseFolder): Promise<void> {
  for (const { name, isHeld } of await readLeases(folder))
    if (!isHeld) await rm(join(folder.root, name), { force: true });
}

async function withLease<T>({ root }: BaseFolder, kind: string, work: () => Promise<T>): Promise<T> {
  const start = (await startOf(process.pid)) ?? 0;
  const path = join(root, `${kind}-${process.pid}-${start}-${randomBytes(4).toString('hex')}`);
  await writeFile(path, '', { mode: 0o600 });
  try {
    return await work();
  } finally {
    await rm(path, { force: true });
  }
}

async function waitForRemovers(folder: BaseFolder): Promise<void> {
  for (const deadline = performance.now() + maxRemovalMs; ; await sleep(pollMs)) {
    const remover = (await readLeases(folder)).find(({ isHeld, base }) => isHeld && base === undefined);
    if (!remover) return;
    if (performance.now() > deadline)
      throw new OperatorError(
        `Process ${remover.pid} has been removing base backups in ${folder.root} for a minute. End it, or wait until it ` +
          'has ended; then run this again',
      );
  }
}

async function readLeases({ root }: BaseFolder): Promise<Lease[]> {
  const names = await readdir(root).catch(() => []);
  const leases = names.map(async (name): Promise<Lease | undefined> => {
    const { base, pid, start } = leaseName.exec(name)?.groups ?? {};
    if (pid === undefined) return undefined;
    return { name, base, pid: Number(pid), isHeld: (await startOf(Number(pid))) === Number(start) };
  });
  return (await Promise.all(leases)).filter(lease => lease !== undefined);
}

/**
 * Returns when a process began, in ticks since the start of the machine, because numbers of processes are given again.
 * 0 where the system does not say it; undefined if there is no such process.
 */
async function startOf(pid: number): Promise<number | undefined> {
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  // The second field, the name of the program, can contain anything.
  if (status !== undefined) return Number(status.slice(status.lastIndexOf(')')).split(' ')[20]);
  try {
    process.kill(pid, 0);
    return 0;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM' ? 0 : undefined;
  }
}
