import { type Clock, processClock, type Timer } from '../runtime/clock.ts';

type Query = (statement: string | { name: string; text: string; values: string[] }) => Promise<unknown>;

/** Maximum pause between two writes of a burst, in ms. No process caches the resource until this time has passed. */
const burstMs = 20;

/**
 * The shared advisory locks of resources that one connection holds during a burst of writes.
 *
 * While any connection holds the lock of a resource, no process caches a response of that resource. So the write that
 * takes the lock is announced, and the writes that follow under the same lock need no announcement.
 *
 * The locks belong to the session: when the connection is lost, PostgreSQL releases them and rolls back every change
 * that was not committed.
 */
export class WriteLocks {
  readonly #query: Query;
  readonly #isInUse: () => boolean;
  readonly #clock: Clock;
  /** The locks that the connection holds and whose write has been announced. */
  readonly #announced = new Set<string>();
  #timer: Timer | undefined;
  #isBurstOver = false;

  /**
   * @param query sends a statement on the connection
   * @param isInUse true while a request uses the connection, so that a write may be under way on it
   */
  constructor(query: Query, isInUse: () => boolean, clock: Clock = processClock) {
    this.#query = query;
    this.#isInUse = isInUse;
    this.#clock = clock;
  }

  /**
   * Resolves when the lock is held and its write is announced. The announcement also counts if the write fails
   * afterwards.
   * @throws the error of `announce`; the caller must not write then
   */
  async hold(lock: string, announce: () => Promise<void>): Promise<void> {
    this.#isBurstOver = false;
    this.#timer = this.#timer?.refresh() ?? this.#clock.setTimeout(() => this.#onBurstEnd(), burstMs).unref();
    if (this.#announced.has(lock)) return;
    await this.#query({ name: 'hold', text: 'select pg_advisory_lock_shared($1)', values: [lock] });
    await announce();
    this.#announced.add(lock);
  }

  /**
   * True when this connection holds the lock for writes. A read on the same connection must check this, because
   * PostgreSQL grants a session any lock that conflicts only with the session's own locks.
   */
  has(lock: string): boolean {
    return this.#announced.has(lock);
  }

  /** Must be called when a request releases the connection: all of its writes have then ended. */
  onClientRelease(): void {
    if (this.#isBurstOver) this.#releaseAll();
  }

  #onBurstEnd(): void {
    this.#isBurstOver = true;
    if (!this.#isInUse()) this.#releaseAll();
  }

  #releaseAll(): void {
    this.#isBurstOver = false;
    this.#announced.clear();
    this.#query('select pg_advisory_unlock_all()').catch(() => {
      this.#isBurstOver = true; // tries again after the next use; a lost connection has no locks to release
    });
  }
}
