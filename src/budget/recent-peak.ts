const windowMs = 5_000;

/** The largest of the values of the last 5 s. */
export class RecentPeak {
  /** In the order of time; each value is smaller than the one before. */
  readonly #peaks: { at: number; value: number }[] = [];

  /** @returns the peak, `value` included */
  add(now: number, value: number): number {
    const peaks = this.#peaks;
    while (peaks[0] && peaks[0].at <= now - windowMs) peaks.shift();
    for (let last = peaks.at(-1); last && last.value <= value; last = peaks.at(-1)) peaks.pop();
    peaks.push({ at: now, value });
    return peaks[0]?.value ?? value;
  }
}
