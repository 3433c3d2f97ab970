import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { backupRunKey, lockSpaces, tryLock } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { type Queryable, shareConnection } from '../../lib/postgres/shared-connection.ts';

/** The locks of backups: the second number of each advisory lock, and the noun of its work. */
export const backupLocks = {
  archives: { key: backupRunKey, noun: 'backup run' },
  drill: { key: 1, noun: 'drill' },
  retention: { key: 2, noun: 'removal of old rows' },
} as const;

/**
 * Runs `work` while no other process of this control database has the same lock. The lock ends
 * with the connection, also when this process is killed. `work` records its results on that
 * connection, so a process that has lost its lock cannot go on.
 * @param lock `archives`: objects are written or removed; `drill`: scratch databases are made;
 *   `retention`: old rows are removed from tenants
 * @throws {OperatorError} when another process has the lock
 */
export async function withBackupLock<T>(
  controlUrl: string,
  lock: keyof typeof backupLocks,
  work: (control: Queryable) => Promise<T>,
): Promise<T> {
  const taken = await tryWithBackupLock(controlUrl, lock, work);
  if (taken) return taken.result;

  throw new OperatorError(
    `Another ${backupLocks[lock].noun} is in progress: nothing was changed. Wait until it has ended`,
  );
}

/**
 * Runs `work` as `withBackupLock` does.
 * @returns undefined when another process has the lock
 */
export function tryWithBackupLock<T>(
  controlUrl: string,
  lock: keyof typeof backupLocks,
  work: (control: Queryable) => Promise<T>,
): Promise<{ readonly result: T } | undefined> {
  return withConnection(controlUrl, async client => {
    if (!(await tryLock(client, lockSpaces.backup, backupLocks[lock].key))) return undefined;

    return { result: await work(shareConnection(client)) };
  });
}

const pollMs = 1_000;

/**
 * Runs `work` as `withBackupLock` does, after the process that has the lock has released it.
 * @param signal the signal after whose abort it does not wait any more
 * @throws {OperatorError} when that takes longer than `maxWaitMs`
 */
export async function waitWithBackupLock<T>(
  controlUrl: string,
  lock: keyof typeof backupLocks,
  work: (control: Queryable) => Promise<T>,
  { maxWaitMs, signal }: { maxWaitMs: number; signal?: AbortSignal | undefined },
): Promise<T> {
  const deadline = performance.now() + maxWaitMs;

  while (performance.now() < deadline && !signal?.aborted) {
    const taken = await tryWithBackupLock(controlUrl, lock, work);
    if (taken) return taken.result;
    await sleep(pollMs, undefined, { signal }).catch(() => {}); // aborted
  }

  return withBackupLock(controlUrl, lock, work);
}
