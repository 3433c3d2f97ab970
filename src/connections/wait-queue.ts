import { PoolError } from '../postgres/database-error.ts';
import type { PoolState, Waiter } from './pool-state.ts';
import type { TenantClient } from './tenant-client.ts';

type Pool = PoolState<TenantClient>;

/** What became of those who waited, since the start of the process. */
export interface WaitCounts {
  /** Waits that ended, and the milliseconds they took together. */
  waits: number;
  waitedMs: number;
  /** Of them, those that ended without a connection. */
  refused: number;
}

const maxWaiters = 2_000; // beyond it, waiting only makes everybody late
const switchingMs = 50; // to close one connection and open another costs many times what a request does

/** Those who wait for a connection to one server, and whose turn it is. */
export class WaitQueue {
  readonly counts: WaitCounts = { waits: 0, waitedMs: 0, refused: 0 };
  /** Pools in which somebody waits. */
  readonly #pools = new Set<Pool>();
  readonly #waitMs: number;
  readonly #onRefused: () => void;
  #length = 0;

  /**
   * @param waitMs longest wait
   * @param onTimeout called when somebody has waited in vain: what was on its way for them is another's now
   */
  constructor(waitMs: number, onTimeout: () => void) {
    this.#waitMs = waitMs;
    this.#onRefused = onTimeout;
  }

  get length(): number {
    return this.#length;
  }

  /** @throws {PoolError} at once when too many wait, or later when the wait was too long */
  enqueue(pool: Pool): Promise<TenantClient> {
    if (this.#length >= maxWaiters) this.#makeRoom(pool);
    return new Promise<TenantClient>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#refuse(pool, waiter, 'no connection came free in time');
        this.#onRefused();
      }, this.#waitMs);
      const waiter: Waiter<TenantClient> = { resolve, reject, since: performance.now(), timer };
      this.#length++;
      pool.waiting.push(waiter);
      this.#pools.add(pool);
    });
  }

  /** The one who waits in a pool the longest, whose wait is over. */
  dequeue(pool: Pool): Waiter<TenantClient> | undefined {
    const [waiter] = pool.waiting;
    if (waiter) this.#end(pool, waiter);
    return waiter;
  }

  /**
   * Whose turn it is: of the pools that miss connections, the one that has the fewest; of those, the one in which somebody
   * waits the longest. Who can use a connection as it is counts as having come a little earlier.
   */
  nextPool(missing: (pool: Pool) => number): Pool | undefined {
    let next: Pool | undefined;
    for (const pool of this.#pools) {
      if (missing(pool) <= 0) continue;
      const fewer = next ? pool.inUseOrOpening - next.inUseOrOpening : -1;
      if (!next || fewer < 0 || (fewer === 0 && turnOf(pool) < turnOf(next))) next = pool;
    }
    return next;
  }

  /** Room for one more of this pool, at the cost of the pool that has the most in the line. */
  #makeRoom(pool: Pool): void {
    let longest = pool;
    for (const each of this.#pools) if (each.waiting.length > longest.waiting.length) longest = each;
    const last = longest.waiting.at(-1);
    if (longest === pool || !last) throw new PoolError('POOL_TIMEOUT', 'too many wait for a connection');
    this.#refuse(longest, last, 'too many wait for a connection');
  }

  #refuse(pool: Pool, waiter: Waiter<TenantClient>, reason: string): void {
    this.#end(pool, waiter);
    this.counts.refused++;
    waiter.reject(new PoolError('POOL_TIMEOUT', reason));
  }

  #end(pool: Pool, waiter: Waiter<TenantClient>): void {
    clearTimeout(waiter.timer);
    pool.waiting.splice(pool.waiting.indexOf(waiter), 1);
    if (pool.waiting.length === 0) this.#pools.delete(pool);
    this.#length--;
    this.counts.waits++;
    this.counts.waitedMs += performance.now() - waiter.since;
  }
}

function turnOf({ waiting: [first], idle }: Pool): number {
  return (first?.since ?? Number.POSITIVE_INFINITY) - (idle.length > 0 ? switchingMs : 0);
}
