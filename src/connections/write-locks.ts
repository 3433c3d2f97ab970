type Query = (statement: string | { name: string; text: string; values: string[] }) => Promise<unknown>;

const burstMs = 20; // between two changes of a burst; as long after the last one nobody keeps answers

/**
 * The locks of resources that a connection holds, shared, for a burst of changes. While anybody holds one, no process
 * keeps answers of its resource, so the change that takes it is announced, and those that follow need not be.
 *
 * They belong to the session: when the connection is cut they are gone, and so is whatever it had not committed.
 */
export class WriteLocks {
  readonly #query: Query;
  readonly #isInUse: () => boolean;
  readonly #announced = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  /**
   * @param query asks the connection
   * @param isInUse whether somebody has the connection, so that a change may be under way on it
   */
  constructor(query: Query, isInUse: () => boolean) {
    this.#query = query;
    this.#isInUse = isInUse;
  }

  /**
   * Resolves when the lock is held and its change is announced, also a change that is refused afterwards.
   * @throws what `announce` throws; then it must not be changed
   */
  async hold(lock: string, announce: () => Promise<void>): Promise<void> {
    this.#isOver = false;
    this.#timer = this.#timer?.refresh() ?? setTimeout(() => this.#onTime(), burstMs).unref();
    if (this.#announced.has(lock)) return;
    await this.#query({ name: 'hold', text: 'select pg_advisory_lock_shared($1)', values: [lock] });
    await announce();
    this.#announced.add(lock);
  }

  /** Whether changes are made under it on this connection, which PostgreSQL never lets wait for its own locks. */
  has(lock: string): boolean {
    return this.#announced.has(lock);
  }

  /** The connection is given back: whatever was changed is committed, or never will be. */
  onClientRelease(): void {
    if (this.#isOver) this.#letGo();
  }

  #onTime(): void {
    this.#isOver = true;
    if (!this.#isInUse()) this.#letGo();
  }

  #letGo(): void {
    this.#isOver = false;
    this.#announced.clear();
    this.#query('select pg_advisory_unlock_all()').catch(() => {
      this.#isOver = true; // once more after the next use; of a connection that was cut, they are gone
    });
  }
}
