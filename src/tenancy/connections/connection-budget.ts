import { isServerFull } from '../../lib/postgres/database-error.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { Contention } from './contention.ts';
import { ServerConnections } from './server-connections.ts';
import type { Pool, TenantClient } from './tenant-client.ts';
import { type WaitCounts, WaitQueue } from './wait-queue.ts';

interface ConnectionBudgetOptions {
  /**
   * Maximum connections to the server, over all tenants. A connection counts from before it is
   * opened until it is closed. `setMax` changes it.
   */
  max: number;
  /** Maximum connections of one tenant. */
  maxPerTenant: number;
  /** Maximum connections of one tenant while other tenants use the server too. */
  maxPerTenantShared: number;
  /** Maximum wait for a connection, in milliseconds. */
  maxWaitMs: number;
  /**
   * False while the control database confirms no beat: then no connection is opened, whatever
   * the maximum is. Default: always true.
   */
  mayOpen?: () => boolean;
}

export interface BudgetUsage {
  /** Connections that the server counts: in use, idle, being opened and being closed. */
  readonly open: number;
  readonly inUse: number;
  /** Requests that wait for a connection. */
  readonly waiting: number;
}

/** Counts since the start of the process. */
export interface BudgetCounts extends WaitCounts {
  readonly opened: number;
  /** Idle connections of one tenant that were closed to make room for another tenant. */
  readonly evicted: number;
  /** Connections that the server refused because it had no more (SQLSTATE 53300). */
  readonly serverFull: number;
}

/** Pause after the server refused a connection, unless one of this process ends before. */
const serverFullMs = 100;

/**
 * Limits the connections of this process to one PostgreSQL server: at most `max` over all
 * tenants.
 *
 *   open ahead   The first connection of a tenant is opened while its caller is looked up.
 *   acquire      A tenant takes an idle connection of its own, or opens one while there is
 *                room.
 *   evict        Without room, the budget closes an idle connection of the tenant with the
 *                lowest recent usage per idle connection. So busy tenants stay connected. (If
 *                it closed the least recently used connection, a stream of tenants with one
 *                request each would close the connections of all others.) A tenant that has
 *                just made a change keeps its connection, on which webhooks and streams read
 *                the change.
 *   connect      Only a few connections are opened at a time (`ConnectLimiter`).
 *   server full  A server may have fewer connections than the budget. When it refuses one, an
 *                idle one is evicted, and the waiters wait until another attempt succeeds.
 *   wait         When all connections are in use, requests wait. The tenant with the fewest
 *                connections is served first (`WaitQueue`), so no tenant keeps more than its
 *                share while others wait.
 *   contention   While other tenants are active (`Contention`), a tenant has a lower maximum.
 *                With the full maximum, its queries would occupy the server, and the queries of
 *                other tenants would wait in the server instead of in this queue.
 */
export class ConnectionBudget {
  readonly #options: ConnectionBudgetOptions;
  readonly #waitQueue: WaitQueue;
  readonly #contention = new Contention();
  readonly #connections: ServerConnections;
  #max: number;
  #inUse = 0;
  #serverFull = 0;
  #serverFullPause: NodeJS.Timeout | undefined;

  constructor(options: ConnectionBudgetOptions) {
    this.#options = options;
    this.#max = options.max;
    this.#connections = new ServerConnections({
      onChange: () => {
        this.#connections.closeAbove(this.#max);
        this.#serve();
      },
      onOpenFailed: (pool, error) => {
        if (isServerFull(error)) this.#onServerFull();
        else this.#waitQueue.dequeue(pool)?.reject(error);
      },
    });

    this.#waitQueue = new WaitQueue({
      maxWaitMs: options.maxWaitMs,
      mayOpen: () => options.mayOpen?.() ?? true,
      onTimeout: () => this.#serve(),
    });
  }

  /** Maximum open connections. */
  get max(): number {
    return this.#max;
  }

  /**
   * Sets the maximum. Idle connections above it are closed at once, and those in use when they
   * are released.
   */
  setMax(max: number): void {
    this.#max = max;
    this.#connections.closeAbove(max);
    this.#serve();
  }

  /** Closes the idle connection that is least likely to be needed, if there is one. */
  evict(): void {
    this.#connections.evict();
  }

  get usage(): BudgetUsage {
    return { open: this.#connections.open, inUse: this.#inUse, waiting: this.#waitQueue.length };
  }

  get counts(): BudgetCounts {
    return { ...this.#connections.counts, ...this.#waitQueue.counts, serverFull: this.#serverFull };
  }

  /**
   * Returns a connection of this pool, which the caller must release. The connection is counted
   * before the first `await`: otherwise concurrent callers could exceed the limit.
   * @throws {PoolError} when no connection became free in time, or too many requests wait:
   *   `POOL_TIMEOUT`, or the code of the database that does not answer
   */
  async acquire(pool: Pool, deadline?: Deadline): Promise<TenantClient> {
    this.#contention.recordUse(pool);
    // This is fair to all waiters: waiters of this pool are served first, and waiters of other
    // pools cannot use the connection. It could only be evicted for them, and `#serve`
    // decided against that when it became idle.
    if (pool.waiting.length === 0 && pool.inUse < this.#maxPerTenant) {
      const client = this.#connections.takeIdle(pool);
      if (client) return this.#use(client);
    }
    const waiting = this.#waitQueue.enqueue(pool, deadline);
    this.#serve();
    return waiting;
  }

  /**
   * Opens a connection for a pool that has none, before a request asks for it. Does nothing
   * unless there is room for it at once: it waits for nothing, takes no other connection's place,
   * and has no waiter. A request that comes meanwhile gets this very connection, or its error;
   * an earlier error is left to the connection that the request then opens.
   */
  openAhead(pool: Pool): void {
    const { open, connectRoom } = this.#connections;
    const isRoom = this.#waitQueue.length === 0 && open < this.#max && connectRoom > 0;
    if (isRoom && this.#mayOpen) void this.#connections.openFor(pool);
  }

  /**
   * Rejects the waiters of a pool that has ended with `error`, and closes its idle connections.
   */
  endPool(pool: Pool, error: Error): void {
    for (
      let waiter = this.#waitQueue.dequeue(pool);
      waiter;
      waiter = this.#waitQueue.dequeue(pool)
    ) {
      waiter.reject(error);
    }
    this.#connections.closeIdleOf(pool);
  }

  /** Resolves when no connection is open. Every pool must have ended. */
  async close(): Promise<void> {
    this.#contention.stop();
    clearTimeout(this.#serverFullPause);
    await this.#connections.drain();
  }

  #serve(): void {
    const queue = this.#waitQueue;
    if (queue.length === 0) return;
    this.#serveWaiters();
    // Waiters may get more connections when the contention ends, and no other event reports
    // that.
    if (queue.length > 0 && this.#contention.isShared) {
      this.#contention.callWhenOver(() => this.#serve());
    }
  }

  /**
   * Serves waiters in the order of the queue while there are connections, and makes room for
   * the remaining ones.
   */
  #serveWaiters(): void {
    const [queue, connections, maxPerTenant] = [
      this.#waitQueue,
      this.#connections,
      this.#maxPerTenant,
    ];
    /** The number of closing connections whose place each pool will take. */
    const reserved = new Map<Pool, number>();
    /** Closing connections that make room; those above the maximum do not. */
    let unreserved = Math.max(
      0,
      Math.min(connections.closing, this.#max - (connections.open - connections.closing)),
    );
    let connectRoom = this.#mayOpen ? connections.connectRoom : 0;
    const demand = (pool: Pool): number =>
      pool.idle.length > 0 || connectRoom > 0
        ? pool.unmetDemand(maxPerTenant) - (reserved.get(pool) ?? 0)
        : 0;

    for (let pool = queue.nextPool(demand); pool; pool = queue.nextPool(demand)) {
      const client = connections.takeIdle(pool);
      if (client) {
        queue.dequeue(pool)?.resolve(this.#use(client)); // a pool with a demand has a waiter
      } else if (connections.open < this.#max) {
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
   * The waiter goes on waiting: another attempt follows after a pause, in the place of an idle
   * connection.
   */
  #onServerFull(): void {
    this.#serverFull++;
    this.#connections.evict();
    this.#serverFullPause ??= setTimeout(() => {
      this.#serverFullPause = undefined;
      this.#serve();
    }, serverFullMs);
  }

  get #mayOpen(): boolean {
    return this.#serverFullPause === undefined && (this.#options.mayOpen?.() ?? true);
  }

  get #maxPerTenant(): number {
    return this.#contention.isShared
      ? this.#options.maxPerTenantShared
      : this.#options.maxPerTenant;
  }

  #use(client: TenantClient): TenantClient {
    client.pool.inUse++;
    this.#inUse++;
    return client.beginUse(() => this.#release(client));
  }

  #release(client: TenantClient): void {
    client.pool.inUse--;
    this.#inUse--;
    this.#connections.keep(client);
    this.#connections.closeAbove(this.#max);
    this.#serve();
  }
}
