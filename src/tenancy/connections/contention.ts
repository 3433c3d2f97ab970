const windowMs = 1_000;

/**
 * Detects whether more than one tenant uses a shared resource. If so, each tenant gets a
 * smaller share of it.
 */
export class Contention {
  #latestTenant: unknown;
  #latestAt = Number.NEGATIVE_INFINITY;
  /**
   * The last time at which a tenant used the resource within `windowMs` after another tenant.
   */
  #sharedAt = Number.NEGATIVE_INFINITY;
  #end: NodeJS.Timeout | undefined;

  recordUse(tenant: unknown): void {
    const now = performance.now();
    if (tenant !== this.#latestTenant && now - this.#latestAt < windowMs) this.#sharedAt = now;
    this.#latestTenant = tenant;
    this.#latestAt = now;
  }

  /** True while more than one tenant has been active within the last second. */
  get isShared(): boolean {
    return this.#sharedForMs > 0;
  }

  /**
   * Calls back once, when `isShared` becomes false if no other tenant comes. Does nothing while
   * a call is due.
   */
  callWhenOver(callback: () => void): void {
    this.#end ??= setTimeout(() => {
      this.#end = undefined;
      callback();
    }, this.#sharedForMs + 1);
  }

  stop(): void {
    clearTimeout(this.#end);
  }

  get #sharedForMs(): number {
    return this.#sharedAt + windowMs - performance.now();
  }
}
