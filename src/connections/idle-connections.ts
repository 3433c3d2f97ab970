import type { PoolState } from './pool-state.ts';
import type { TenantClient } from './tenant-client.ts';

type Pool = PoolState<TenantClient>;

/** The connections to one server that nobody uses at the moment, kept for the tenants whose they are. */
export class IdleConnections {
  /** Those that have any. */
  readonly #pools = new Set<Pool>();
  readonly #close: (client: TenantClient) => void;

  /** @param close for one that turns out to be of no more use */
  constructor(close: (client: TenantClient) => void) {
    this.#close = close;
  }

  add(client: TenantClient): void {
    client.idleSince = performance.now();
    client.pool.idle.push(client);
    this.#pools.add(client.pool);
  }

  /** The one of this tenant used last, whose caches and memory are the warmest. */
  take(pool: Pool): TenantClient | undefined {
    let client = pool.idle.pop();
    while (client && !client.isReusable) {
      this.#close(client);
      client = pool.idle.pop();
    }
    if (pool.idle.length === 0) this.#pools.delete(pool);
    return client;
  }

  /** One of the tenant whose idle connections are the least likely to be needed: by how often it is asked for, for each of them. */
  takeLeastUsed(): TenantClient | undefined {
    let coldest: Pool | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const pool of this.#pools) {
      const score = pool.usageScore - Math.log2(pool.idle.length);
      if (score < least) [coldest, least] = [pool, score];
    }
    return coldest && this.take(coldest);
  }

  /** Those that have been idle since before that moment of `performance.now()`. */
  takeOlderThan(moment: number): TenantClient[] {
    const older = [...this.#pools].flatMap(({ idle }) => idle.filter(({ idleSince }) => idleSince < moment));
    for (const client of older) this.remove(client);
    return older;
  }

  /** Takes this one out, if it is here. */
  remove(client: TenantClient): void {
    const { idle } = client.pool;
    const at = idle.indexOf(client);
    if (at >= 0) idle.splice(at, 1);
    if (idle.length === 0) this.#pools.delete(client.pool);
  }
}
