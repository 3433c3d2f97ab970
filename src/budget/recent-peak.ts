const windowMs = 5_000;

/** The largest of the values of the last 5 s. */
export class RecentPeak {
  #values: { at: number; value: number }[] = [];

  /** @returns the peak, `value` included */
  add(now: number, value: number): number {
    this.#values = [...this.#values.filter(({ at }) => at > now - windowMs), { at: now, value }];
    return Math.max(...this.#values.map(each => each.value));
  }
}
