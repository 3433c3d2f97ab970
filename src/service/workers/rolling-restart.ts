/**
 * The workers that a restart must still replace, and the one that it replaces now: one at a
 * time.
 */
export class RollingRestart {
  /** True if another restart was requested meanwhile. */
  again = false;
  readonly #remaining: Set<number>;
  /**
   * The worker that starts, and the former one that it replaces; `undefined` when the former
   * one has died meanwhile.
   */
  #replacing: { readonly next: number; previous: number | undefined } | undefined;

  constructor(workers: readonly number[]) {
    this.#remaining = new Set(workers);
  }

  get replacing(): { readonly next: number; readonly previous: number | undefined } | undefined {
    return this.#replacing;
  }

  /** True when every worker is replaced or gone. */
  get isDone(): boolean {
    return !this.#replacing && this.#remaining.size === 0;
  }

  /**
   * Returns the next worker to replace; undefined while one is being replaced, or none of the
   * rest serves yet.
   */
  pick(serving: readonly number[]): number | undefined {
    return this.#replacing ? undefined : serving.find(worker => this.#remaining.has(worker));
  }

  /** Notes that a worker starts in the place of another one. */
  begin(next: number, previous: number): void {
    this.#remaining.delete(previous);
    this.#replacing = { next, previous };
  }

  /** Notes that the replacement is complete. */
  endStep(): void {
    this.#replacing = undefined;
  }

  /**
   * Notes that a worker has died.
   * @returns true if another one that replaces it is starting
   */
  leave(worker: number): boolean {
    this.#remaining.delete(worker);
    if (this.#replacing?.previous !== worker) return false;
    this.#replacing.previous = undefined;
    return true;
  }
}
