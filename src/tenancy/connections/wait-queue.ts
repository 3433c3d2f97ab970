import { PoolError } from '../../lib/postgres/database-error.ts';
import { type Deadline, DeadlineError } from '../../lib/runtime/deadline.ts';
import type { Waiter } from './pool-state.ts';
import type { Pool, TenantClient } from './tenant-client.ts';

/** Counts since the start of the process. */
export interface WaitCounts {
  /** Waits that ended, and their total duration in milliseconds. */
  waits: number;
  waitedMs: number;
  /** Waits that ended with a timeout, or because too many requests waited. */
  refused: number;
}

interface WaitQueueOptions {
  readonly maxWaitMs: number;
  /** False while the control database confirms no beat: then no connection is opened. */
  readonly mayOpen: () => boolean;
  /**
   * Called after a waiter timed out: the connection being opened for it can serve another
   * waiter.
   */
  readonly onTimeout: () => void;
}

const maxWaiters = 2_000; // a longer queue only delays every request
/**
 * The advantage of a pool with an idle connection: closing one connection and opening another
 * costs many times what a request does.
 */
const idleAdvantageMs = 50;

/**
 * True when a connection of a pool is being opened, and none has become idle since a moment: the
 * server has answered nobody meanwhile.
 */
function isUnanswered(pool: Pool, since: number): boolean {
  return pool.opening > 0 && pool.lastIdleAt < since;
}

/**
 * The requests that wait for a connection to one server, and the order in which pools are
 * served.
 */
export class WaitQueue {
  readonly counts: WaitCounts = { waits: 0, waitedMs: 0, refused: 0 };
  /** The pools that have a waiter. */
  readonly #pools = new Set<Pool>();
  readonly #options: WaitQueueOptions;
  #length = 0;

  constructor(options: WaitQueueOptions) {
    this.#options = options;
  }

  get length(): number {
    return this.#length;
  }

  /**
   * @throws {PoolError} `POOL_TIMEOUT`: at once when the queue is full, or after the maximum
   *   wait; `NO_BEAT` instead while no connection may be opened, and `ETIMEDOUT` after the wait
   *   if the server has not answered
   * @throws {DeadlineError} when `deadline` passes
   */
  enqueue(pool: Pool, deadline?: Deadline): Promise<TenantClient> {
    if (this.#length >= maxWaiters) this.#makeRoom(pool);

    return new Promise<TenantClient>((resolve, reject) => {
      const giveUp = (error: Error) => {
        this.#refuse(pool, waiter, error);
        this.#options.onTimeout();
      };

      const since = performance.now();
      const timeoutError = () =>
        isUnanswered(pool, since)
          ? new PoolError('ETIMEDOUT', 'the server has not answered in time')
          : this.#noneFree('no connection became free in time');

      const timer = setTimeout(() => giveUp(timeoutError()), this.#options.maxWaitMs);
      const forgetDeadline = deadline?.onPass(() => giveUp(new DeadlineError()));

      const waiter: Waiter<TenantClient> = {
        resolve,
        reject,
        since,
        timer,
        forgetDeadline,
      };

      this.#length++;
      pool.waiting.push(waiter);
      this.#pools.add(pool);
    });
  }

  /** Removes and returns the waiter of a pool that has waited longest. */
  dequeue(pool: Pool): Waiter<TenantClient> | undefined {
    const [waiter] = pool.waiting;
    if (waiter) this.#remove(pool, waiter);
    return waiter;
  }

  /**
   * Returns the pool to serve next: of the pools with an unmet demand, the one with the fewest
   * connections in use or being opened; of equals, the one whose first waiter came first. A
   * pool with an idle connection counts as 50 ms earlier.
   */
  nextPool(unmetDemand: (pool: Pool) => number): Pool | undefined {
    let next: Pool | undefined;
    for (const pool of this.#pools) {
      if (unmetDemand(pool) <= 0) continue;
      const difference = next ? pool.inUseOrOpening - next.inUseOrOpening : -1;
      if (!next || difference < 0 || (difference === 0 && rank(pool) < rank(next))) next = pool;
    }
    return next;
  }

  /**
   * Refuses the last waiter of the pool with the most waiters, so that one tenant cannot fill
   * the queue for the others.
   */
  #makeRoom(pool: Pool): void {
    let longest = pool;
    for (const each of this.#pools) {
      if (each.waiting.length > longest.waiting.length) longest = each;
    }
    const last = longest.waiting.at(-1);
    if (longest === pool || !last) throw this.#noneFree(queueFull);
    this.#refuse(longest, last, this.#noneFree(queueFull));
  }

  /** Returns the error of a request that gets no connection, because of one of two causes. */
  #noneFree(tooMuch: string): PoolError {
    return this.#options.mayOpen()
      ? new PoolError('POOL_TIMEOUT', tooMuch)
      : new PoolError('NO_BEAT', 'the control database has confirmed no beat for 3 s');
  }

  #refuse(pool: Pool, waiter: Waiter<TenantClient>, error: Error): void {
    this.#remove(pool, waiter);
    this.counts.refused++;
    waiter.reject(error);
  }

  #remove(pool: Pool, waiter: Waiter<TenantClient>): void {
    clearTimeout(waiter.timer);
    waiter.forgetDeadline?.();
    pool.waiting.splice(pool.waiting.indexOf(waiter), 1);
    if (pool.waiting.length === 0) this.#pools.delete(pool);
    this.#length--;
    this.counts.waits++;
    this.counts.waitedMs += performance.now() - waiter.since;
  }
}

const queueFull = 'too many requests wait for a connection';

function rank({ waiting: [first], idle }: Pool): number {
  return (first?.since ?? Number.POSITIVE_INFINITY) - (idle.length > 0 ? idleAdvantageMs : 0);
}
