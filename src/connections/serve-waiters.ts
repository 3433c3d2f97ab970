import type { PoolState } from './pool-state.ts';
import type { ServerConnections } from './server-connections.ts';
import type { TenantClient } from './tenant-client.ts';
import type { WaitQueue } from './wait-queue.ts';

type Pool = PoolState<TenantClient>;

interface Serving {
  queue: WaitQueue;
  connections: ServerConnections;
  /** Maximum connections to the server. */
  max: number;
  /** False while no connection may be opened. */
  mayOpen: boolean;
  /** Current maximum connections of one tenant. */
  maxPerTenant: number;
  /** Counts a connection as in use. */
  use: (client: TenantClient) => TenantClient;
}

/** Serves waiters in the order of the queue while there are connections, and makes room for the others. */
export function serveWaiters({ queue, connections, max, mayOpen, maxPerTenant, use }: Serving): void {
  /** For each pool, the number of closing connections whose place it will take. */
  const reserved = new Map<Pool, number>();
  /** Closing connections above the maximum make no room. */
  let unreserved = Math.max(0, Math.min(connections.closing, max - (connections.open - connections.closing)));
  let connectRoom = mayOpen ? connections.connectRoom : 0;
  const demand = (pool: Pool): number =>
    pool.idle.length > 0 || connectRoom > 0 ? unmetDemand(pool, maxPerTenant) - (reserved.get(pool) ?? 0) : 0;

  for (let pool = queue.nextPool(demand); pool; pool = queue.nextPool(demand)) {
    const client = connections.takeIdle(pool);
    if (client) {
      const waiter = queue.dequeue(pool);
      if (waiter) waiter.resolve(use(client));
      else connections.keep(client);
    } else if (connections.open < max) {
      connectRoom--;
      void connections.openFor(pool);
    } else if (unreserved > 0 || connections.evict()) {
      unreserved = Math.max(0, unreserved - 1);
      connectRoom--;
      reserved.set(pool, (reserved.get(pool) ?? 0) + 1);
    } else {
      return;
    }
  }
}

/**
 * Returns how many more connections the waiters of a pool need, within its maximum. Closing connections still count.
 */
function unmetDemand(pool: Pool, maxPerTenant: number): number {
  const room = maxPerTenant - pool.inUseOrOpening - pool.closing;
  return Math.max(0, Math.min(pool.waiting.length - pool.opening, room));
}
