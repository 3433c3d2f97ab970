interface Change<Value> {
  readonly at: number;
  readonly value: Value;
}

/** The values of a row over the simulated time. */
export class Timeline<Value> {
  readonly #changes: Change<Value>[];

  constructor(value: Value) {
    this.#changes = [{ at: Number.NEGATIVE_INFINITY, value }];
  }

  get current(): Value {
    return (this.#changes.at(-1) as Change<Value>).value;
  }

  change(at: number, value: Value): void {
    this.#changes.push({ at, value });
  }

  /** True if the row had a value that fulfils the condition at some moment from `from` on. */
  hadSince(from: number, condition: (value: Value) => boolean): boolean {
    for (let index = this.#changes.length - 1; index >= 0; index--) {
      const { at, value } = this.#changes[index] as Change<Value>;
      if (condition(value)) return true;
      if (at <= from) return false;
    }
    return false;
  }
}
