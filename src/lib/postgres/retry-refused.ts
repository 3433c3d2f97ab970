import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { isServerFull } from './database-error.ts';

const pauseMs = 100;

interface RetryOptions {
  /** The longest time for which the work is tried. */
  readonly maxMs: number;
  /** Called when the server has refused a connection. */
  readonly onRefused?: (() => void) | undefined;
}

/**
 * Runs `connect`, and repeats it while the server refuses connections because it has no more
 * (SQLSTATE 53300).
 */
export async function retryRefused<T>(
  connect: () => Promise<T>,
  { maxMs, onRefused }: RetryOptions,
): Promise<T> {
  for (const deadline = performance.now() + maxMs; ; ) {
    try {
      return await connect();
    } catch (error) {
      if (!isServerFull(error)) throw error;
      onRefused?.();
      if (performance.now() > deadline) throw error;
    }
    await sleep(pauseMs);
  }
}

type Callback = (
  error: Error | undefined,
  client?: pg.PoolClient,
  release?: pg.PoolClient['release'],
) => void;

/** Lets a pool connect as `retryRefused` does. */
export function retryRefusedOf(pool: pg.Pool, options: RetryOptions): void {
  const connect = pool.connect.bind(pool) as () => Promise<pg.PoolClient>;

  pool.connect = ((callback?: Callback) => {
    const connecting = retryRefused(connect, options);
    if (!callback) return connecting;
    connecting.then(
      client => callback(undefined, client, client.release),
      (error: Error) => callback(error),
    );
    return undefined;
  }) as typeof pool.connect;
}
