import type pg from 'pg';
import { withConnection } from './connection.ts';
import type { Queryable } from './shared-connection.ts';

/**
 * The first number of an advisory lock: the kind of thing that is locked. The second number
 * identifies the thing.
 */
export const lockSpaces = {
  control: 727_101,
  template: 727_102,
  slug: 727_103,
  tenant: 727_104,
  /** Processes of the service that start: one at a time is counted. */
  processes: 727_106,
  run: 727_110,
  /** Runs of backups, and drills: one of each at a time. */
  backup: 727_112,
  /** The users and roles of a tenant. */
  people: 727_111,
  /** The room of a server, while a command decides whether a copy may begin. */
  room: 727_113,
};

/** The second number of the lock of the backup run that is in progress. */
export const backupRunKey = 0;

/**
 * The first number of the locks of the copies that are being made on a server is this number
 * plus the id of the server; the second one is the size of the copy in megabytes.
 */
export const copiesSpace = 800_000;

/**
 * Derives the second number of an advisory lock from a text: 31 bits, the same in every process
 * and every build.
 */
export function lockKey(text: string): number {
  let hash = 0;
  for (const character of text) {
    hash = (hash * 31 + (character.codePointAt(0) ?? 0)) % 2_147_483_647;
  }
  return hash;
}

/**
 * Waits for an advisory lock. The lock is held until the connection ends, also when this
 * process is killed.
 */
export async function acquireLock(client: Queryable, space: number, key: number): Promise<void> {
  await client.query('select pg_advisory_lock($1, $2)', [space, key]);
}

/** Waits for an advisory lock, and runs `work` on the connection that then holds it. */
export async function withLock<T>(
  url: string,
  space: number,
  key: number,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  return withConnection(url, async client => {
    await acquireLock(client, space, key);
    return work(client);
  });
}

type LockMode = 'exclusive' | 'shared';
const suffixes: Record<LockMode, string> = { exclusive: '', shared: '_shared' };

/**
 * Acquires a lock as `acquireLock` does, or returns false when another connection has it in an
 * excluding mode.
 */
export async function tryLock(
  client: Queryable,
  space: number,
  key: number,
  mode: LockMode = 'exclusive',
): Promise<boolean> {
  const text = `select pg_try_advisory_lock${suffixes[mode]}($1, $2) as locked`;
  return (await client.query<{ locked: boolean }>(text, [space, key])).rows[0]?.locked === true;
}

/** Releases a lock before the connection ends. */
export async function releaseLock(
  client: Queryable,
  space: number,
  key: number,
  mode: LockMode = 'exclusive',
): Promise<void> {
  await client.query(`select pg_advisory_unlock${suffixes[mode]}($1, $2)`, [space, key]);
}
