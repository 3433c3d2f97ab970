import type { Pool, TenantClient } from './tenant-client.ts';

/**
 * A query often follows the last one at once: another request of a client, or webhooks that send a change. So a
 * connection that was used a moment ago is kept, and one that has been idle for half a second is not more likely to be
 * needed than after a minute.
 */
const halvingMs = 50;
const maxHalvings = 10;

/** The idle connections to one server. Each can be used by its own tenant only. */
export class IdleConnections {
  /** The pools that have an idle connection. */
  readonly #pools = new Set<Pool>();
  readonly #close: (client: TenantClient) => void;

  /** @param close called with a connection that is not reusable after all */
  constructor(close: (client: TenantClient) => void) {
    this.#close = close;
  }

  add(client: TenantClient): void {
    client.idleSince = performance.now();
    client.pool.idle.push(client);
    this.#pools.add(client.pool);
  }

  /** Takes the tenant's most recently used connection, whose caches and memory are the warmest. */
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
   * Takes the connection that is least likely to be needed: one of the tenant with the lowest usage per idle connection.
   * That counts half as much for each `halvingMs` for which the connection has been idle.
   */
  takeLeastUsed(): TenantClient | undefined {
    const now = performance.now();
    let leastUsed: TenantClient | undefined;
    let minScore = Number.POSITIVE_INFINITY;
    for (const { idle, usageScore } of this.#pools) {
      const [oldest] = idle as [TenantClient];
      const halvings = Math.min((now - oldest.idleSince) / halvingMs, maxHalvings);
      const score = usageScore - Math.log2(idle.length) - halvings;
      if (score < minScore) [leastUsed, minScore] = [oldest, score];
    }
    if (leastUsed) this.remove(leastUsed);
    return leastUsed;
  }

  /** Takes the connections that became idle before `moment`, a value of `performance.now()`. */
  takeIdleSince(moment: number): TenantClient[] {
    const clients = [...this.#pools].flatMap(({ idle }) => idle.filter(({ idleSince }) => idleSince < moment));
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
