import type { Pool, TenantClient } from './tenant-client.ts';

/**
 * The time for which a tenant keeps a connection after a change if others can be closed:
 * webhooks and streams read the change on it.
 */
const changedMs = 1_000;

/** The idle connections to one server. Each can be used by its own tenant only. */
export class IdleConnections {
  /** The pools that have an idle connection. */
  readonly #pools = new Set<Pool>();
  readonly #close: (client: TenantClient) => void;

  /** @param close called with a connection that is found not to be reusable */
  constructor(close: (client: TenantClient) => void) {
    this.#close = close;
  }

  add(client: TenantClient): void {
    client.idleSince = performance.now();
    client.pool.lastIdleAt = client.idleSince;
    client.pool.idle.push(client);
    this.#pools.add(client.pool);
  }

  /**
   * Takes the tenant's most recently used connection, whose caches and memory are the warmest.
   */
  take(pool: Pool): TenantClient | undefined {
    let client = pool.idle.pop();
    while (client && !client.isReusable) {
      this.#close(client);
      client = pool.idle.pop();
    }
    if (pool.idle.length === 0) this.#pools.delete(pool);
    return client;
  }

  /**
   * Takes the connection that is least likely to be needed: of the tenant with the lowest usage
   * per idle connection. If every tenant has just made a change, it is the one whose change was
   * first.
   */
  takeLeastUsed(): TenantClient | undefined {
    const pools = [...this.#pools];
    const changedSince = performance.now() - changedMs;
    const unchanged = pools.filter(({ changedAt }) => changedAt < changedSince);
    const pool =
      unchanged.length > 0
        ? lowest(unchanged, usagePerConnection)
        : lowest(pools, each => each.changedAt);
    return pool && this.take(pool);
  }

  /** Takes the connections that became idle before `moment`, a value of `performance.now()`. */
  takeIdleSince(moment: number): TenantClient[] {
    const clients = [...this.#pools].flatMap(({ idle }) =>
      idle.filter(({ idleSince }) => idleSince < moment),
    );
    for (const client of clients) this.remove(client);
    return clients;
  }

  /** Removes a connection if it is idle. */
  remove(client: TenantClient): void {
    const { idle } = client.pool;
    const at = idle.indexOf(client);
    if (at >= 0) idle.splice(at, 1);
    if (idle.length === 0) this.#pools.delete(client.pool);
  }
}

const usagePerConnection = ({ usageScore, idle }: Pool): number =>
  usageScore - Math.log2(idle.length);

function lowest(pools: readonly Pool[], score: (pool: Pool) => number): Pool | undefined {
  const lowestScore = Math.min(...pools.map(score));
  return pools.find(pool => score(pool) === lowestScore);
}
