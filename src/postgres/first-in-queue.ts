import type pg from 'pg';
import { within } from '../runtime/within.ts';

/** The requests that wait for a connection of a pool, which `pg.Pool` serves in this order. */
interface PoolQueue {
  readonly _pendingQueue: unknown[];
}

/**
 * Returns a connection of a pool, before everybody who waits for one already. The caller releases it.
 * @param maxMs maximum wait
 * @throws when none was free, and none could be opened, in this time
 */
export async function connectFirst(pool: pg.Pool, maxMs: number): Promise<pg.PoolClient> {
  const { _pendingQueue: queue } = pool as unknown as PoolQueue;
  const last = queue.at(-1);
  const connecting = pool.connect();

  const own = queue.at(-1);
  if (own !== last) {
    queue.pop();
    queue.unshift(own);
  }

  try {
    return await within(connecting, maxMs);
  } catch (error) {
    connecting.then(
      client => client.release(),
      () => {},
    );
    throw error;
  }
}
