/** A statement whose response was larger than this, in bytes, is large for the next minute. */
const largeBytes = 512 * 1024;
const rememberMs = 60_000;

/**
 * Runs the large reads of one tenant one after the other. A list of 10 MB takes PostgreSQL and this process some 0.4 s
 * and 30 MB of memory; so a tenant that requests such lists without a pause keeps one core of its server busy, not
 * all, and other requests run in between. Small reads do not wait.
 *
 * A statement is known to be large only after its first large response: until then, its reads run together.
 */
export class LargeReads {
  /**
   * The time until which a statement counts as large, by `performance.now()`. Bounded: names come from the source code.
   */
  readonly #largeUntil = new Map<string, number>();
  #last: Promise<unknown> = Promise.resolve();

  /**
   * @param statement name of the statement
   * @param read returns the result and the number of bytes that it took
   */
  async run<T>(statement: string, read: () => Promise<{ result: T; bytes: number }>): Promise<T> {
    const measured = async (): Promise<T> => {
      const { result, bytes } = await read();
      if (bytes > largeBytes) this.#largeUntil.set(statement, performance.now() + rememberMs);
      return result;
    };
    if ((this.#largeUntil.get(statement) ?? 0) < performance.now()) return measured();
    const reading = this.#last.then(measured);
    this.#last = reading.catch(() => {});
    return reading;
  }
}
