const memoryMs = 1_000;

/** Whether more than one tenant is about: then what one of them may take at a time is less than when it is alone. */
export class Neighbours {
  #latest: unknown;
  #mixedAt = Number.NEGATIVE_INFINITY;

  /** Somebody is here. */
  note(tenant: unknown): void {
    if (tenant === this.#latest) return;
    if (this.#latest !== undefined) this.#mixedAt = performance.now();
    this.#latest = tenant;
  }

  /** Whether there were two within the last second. */
  get present(): boolean {
    return performance.now() - this.#mixedAt < memoryMs;
  }
}
