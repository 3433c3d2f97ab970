/** Runs the work of one key one after the other, and that of different keys side by side. */
export class KeyedQueue {
  /** The last queued work of each key, until it ends. */
  readonly #last = new Map<string, Promise<void>>();

  /** @returns the result of the work, which begins when the earlier work of its key has ended */
  async run<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
    const result = (this.#last.get(key) ?? Promise.resolve()).then(work);
    const ended = result.then(
      () => {},
      () => {},
    );
    this.#last.set(key, ended);

    try {
      return await result;
    } finally {
      if (this.#last.get(key) === ended) this.#last.delete(key);
    }
  }
}
