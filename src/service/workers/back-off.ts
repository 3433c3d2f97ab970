const minDelayMs = 500;
const maxDelayMs = 30_000;
/** After this time without a failure, the next one counts as the first. */
const calmMs = 60_000;

/**
 * The delays after failures: none after the first one, then 0.5 s, doubled with each further
 * one up to 30 s.
 */
export class BackOff {
  #failures = 0;
  #lastAt = Number.NEGATIVE_INFINITY;

  /**
   * Counts a failure.
   * @returns the delay until the next attempt, in milliseconds
   */
  next(now: number): number {
    if (now - this.#lastAt > calmMs) this.#failures = 0;
    const delayMs =
      this.#failures === 0 ? 0 : Math.min(maxDelayMs, minDelayMs * 2 ** (this.#failures - 1));
    this.#failures++;
    this.#lastAt = now;
    return delayMs;
  }
}
