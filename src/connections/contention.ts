const memoryMs = 1_000;

/** Whether more than one tenant is about: then what one of them may take at a time is less than when it is alone. */
export class Contention {
  #latest: unknown;
  #latestAt = Number.NEGATIVE_INFINITY;
  #mixedAt = Number.NEGATIVE_INFINITY;

  /** Somebody is here. */
  recordUse(tenant: unknown): void {
    const now = performance.now();
    if (tenant !== this.#latest && now - this.#latestAt < memoryMs) this.#mixedAt = now;
    this.#latest = tenant;
    this.#latestAt = now;
  }

  /** Whether there were two within the last second. */
  get isShared(): boolean {
    return this.sharedForMs > 0;
  }

  /** Milliseconds until there is only one, if no other comes; 0 when there is. */
  get sharedForMs(): number {
    return Math.max(0, this.#mixedAt + memoryMs - performance.now());
  }
}
