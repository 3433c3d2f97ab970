import type pg from 'pg';

/** The requests that wait for a connection of a pool, which `pg.Pool` serves in this order. */
interface PoolQueue {
  readonly _pendingQueue: unknown[];
}

/**
 * Returns a connection of a pool, before all requests that wait for one already. The caller
 * releases it.
 * @throws as the pool does
 */
export function connectFirst(pool: pg.Pool): Promise<pg.PoolClient> {
  const { _pendingQueue: queue } = pool as unknown as PoolQueue;
  const last = queue.at(-1);
  const connecting = pool.connect();

  const own = queue.at(-1);
  if (own !== last) {
    queue.pop();
    queue.unshift(own);
  }

  return connecting;
}
