import { timeLimits } from '../postgres/connection.ts';
import { ConnectLimiter } from './connect-limiter.ts';
import { Contention } from './contention.ts';
import { IdleConnections } from './idle-connections.ts';
import type { PoolState } from './pool-state.ts';
import { TenantClient } from './tenant-client.ts';

type Pool = PoolState<TenantClient>;

import { type WaitCounts, WaitQueue } from './wait-queue.ts';

interface ConnectionBudgetOptions {
  /** Most connections to the server, over all tenants, counted from before they are opened until they are closed. */
  max: number;
  /** Most connections of one tenant. */
  maxPerTenant: number;
  /** The same while other tenants use the server as well. */
  maxPerTenantShared: number;
  /** Longest wait for one, in milliseconds. */
  waitMs: number;
}

export interface BudgetUsage {
  /** Connections that the server sees: in use, idle, being opened and being closed. */
  readonly open: number;
  readonly inUse: number;
  /** Requests that wait for one. */
  readonly waiting: number;
}

/** What happened since the start of the process. */
export interface BudgetCounts extends WaitCounts {
  readonly opened: number;
  /** Idle connections of one tenant closed to make room for another. */
  readonly evicted: number;
}

const sweepMs = 5_000;

/**
 * The connections of this process to one PostgreSQL server: never more than `max`, whoever's they are.
 *
 * A tenant that needs one takes an idle one of its own, or opens one while there is room. When there is none, the idle
 * connection that is least likely to be needed again is closed: that of the tenant least often asked for of late, so
 * that what is hot stays connected (with the least recently used one closed instead, a stream of tenants that come once
 * would close everybody's). Only a few are opened at a time. When all are in use, requests wait. Whoever waits is served in the order of what their
 * tenants have: the tenant with the fewest connections first, so none keeps more than its share while others wait. And
 * none works on all of its connections while others are there at all: they would wait for the server instead.
 */
export class ConnectionBudget {
  readonly #options: ConnectionBudgetOptions;
  readonly #line: WaitQueue;
  readonly #idle = new IdleConnections(client => this.#close(client));
  readonly #neighbours = new Contention();
  readonly #openings = new ConnectLimiter(() => this.#serve());
  readonly #sweep: NodeJS.Timeout;
  #alone: NodeJS.Timeout | undefined;
  #open = 0;
  #closing = 0;
  #inUse = 0;
  #opened = 0;
  #evicted = 0;
  #empty: PromiseWithResolvers<void> | undefined;

  constructor(options: ConnectionBudgetOptions) {
    this.#options = options;
    this.#line = new WaitQueue(options.waitMs, () => this.#serve());
    this.#sweep = setInterval(() => this.#closeStale(), sweepMs).unref();
  }

  /** The most connections there may be. */
  get max(): number {
    return this.#options.max;
  }

  get usage(): BudgetUsage {
    return { open: this.#open, inUse: this.#inUse, waiting: this.#line.length };
  }

  get counts(): BudgetCounts {
    return { opened: this.#opened, evicted: this.#evicted, ...this.#line.counts };
  }

  /**
   * A connection of this tenant, to be released. Everything up to the place being taken is synchronous: an await between
   * would let others overshoot the limit.
   * @throws {PoolError} when none came free in time, or too many wait
   */
  async acquire(pool: Pool): Promise<TenantClient> {
    this.#neighbours.recordUse(pool);
    // Who waits in other pools could not use what is idle in this one; before it is idle, they are served.
    if (pool.waiting.length === 0 && pool.inUse < this.#maxPerTenant) {
      const client = this.#idle.take(pool);
      if (client) return this.#lease(client);
    }
    const waiting = this.#line.enqueue(pool);
    this.#serve();
    return waiting;
  }

  /** Gives a connection back; a broken one is closed. */
  release(client: TenantClient): void {
    const { pool } = client;
    pool.inUse--;
    this.#inUse--;
    this.#keep(client);
    this.#serve();
  }

  /** Closes what is idle of a pool that has ended, and sends away those who wait in it. */
  endPool(pool: Pool, error: Error): void {
    for (let waiter = this.#line.dequeue(pool); waiter; waiter = this.#line.dequeue(pool)) waiter.reject(error);
    for (let client = this.#idle.take(pool); client; client = this.#idle.take(pool)) this.#close(client);
  }

  /** Resolves when no connection is open any more. Every pool must have ended. */
  async close(): Promise<void> {
    clearInterval(this.#sweep);
    clearTimeout(this.#alone);
    if (this.#open === 0) return;
    this.#empty ??= Promise.withResolvers();
    await this.#empty.promise;
  }

  /** Serves as many of those who wait as there are connections, in their order, and makes room for the others. */
  #serve(): void {
    const promised = new Map<Pool, number>();
    let places = this.#closing; // that will come free without more being closed
    let toOpen = this.#openings.room;
    const maxPerTenant = this.#maxPerTenant;
    const missing = (pool: Pool) =>
      pool.idle.length > 0 || toOpen > 0 ? missingOf(pool, maxPerTenant) - (promised.get(pool) ?? 0) : 0;
    for (let pool = this.#line.nextPool(missing); pool; pool = this.#line.nextPool(missing)) {
      const client = this.#idle.take(pool);
      if (client) {
        this.#handOver(client);
      } else if (this.#open < this.#options.max) {
        toOpen--;
        void this.#openFor(pool);
      } else if (places > 0 || this.#evictColdest()) {
        places = Math.max(0, places - 1);
        toOpen--;
        promised.set(pool, (promised.get(pool) ?? 0) + 1);
      } else {
        break;
      }
    }
    if (this.#line.length > 0 && this.#neighbours.isShared) this.#serveWhenAlone();
  }

  /** No other event tells those who wait that they may have more. */
  #serveWhenAlone(): void {
    this.#alone ??= setTimeout(() => {
      this.#alone = undefined;
      this.#serve();
    }, this.#neighbours.sharedForMs + 1);
  }

  get #maxPerTenant(): number {
    return this.#neighbours.isShared ? this.#options.maxPerTenantShared : this.#options.maxPerTenant;
  }

  /** @returns false when no connection is idle */
  #evictColdest(): boolean {
    const client = this.#idle.takeLeastUsed();
    if (!client) return false;
    this.#evicted++;
    this.#close(client);
    return true;
  }

  async #openFor(pool: Pool): Promise<void> {
    this.#open++;
    pool.opening++;
    this.#opened++;
    const endOpening = this.#openings.begin();
    let client: TenantClient | undefined;
    try {
      const opened = new TenantClient(pool); // reads the files that an address names, and so may fail
      client = opened;
      opened.once('end', () => this.#closed(opened));
      await opened.open();
      pool.opening--;
      this.#keep(opened);
    } catch (error) {
      pool.opening--;
      this.#line.dequeue(pool)?.reject(error);
      if (client) this.#close(client);
      else this.#open--;
    }
    endOpening();
    this.#serve();
  }

  #handOver(client: TenantClient): void {
    const waiter = this.#line.dequeue(client.pool);
    if (waiter) waiter.resolve(this.#lease(client));
    else this.#keep(client);
  }

  #lease(client: TenantClient): TenantClient {
    client.pool.inUse++;
    this.#inUse++;
    return client.beginUse(() => this.release(client));
  }

  /** Keeps a connection for the next one, unless there is none or it cannot be used again. */
  #keep(client: TenantClient): void {
    if (client.pool.ended || !client.isReusable) {
      this.#close(client);
      return;
    }
    this.#idle.add(client);
  }

  #close(client: TenantClient): void {
    if (client.closing || client.ended) return;
    this.#closing++;
    client.pool.closing++;
    client.close();
  }

  /** Its place is free only now: the server has let go of it. */
  #closed(client: TenantClient): void {
    const { pool } = client;
    if (client.closing) {
      this.#closing--;
      pool.closing--;
    }
    this.#open--;
    this.#idle.remove(client);
    if (this.#open === 0) this.#empty?.resolve();
    this.#serve();
  }

  #closeStale(): void {
    for (const client of this.#idle.takeOlderThan(performance.now() - timeLimits.api.idleMs)) this.#close(client);
  }
}

/** How many connections a pool may have beside those it has, those on their way, and those that the server still sees. */
function missingOf(pool: Pool, maxPerTenant: number): number {
  const room = maxPerTenant - pool.inUseOrOpening - pool.closing;
  return Math.max(0, Math.min(pool.waiting.length - pool.opening, room));
}
