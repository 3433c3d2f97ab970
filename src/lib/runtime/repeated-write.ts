/**
 * Writes what gathers in memory, again and again, one write after the other, so that no request
 * waits for it. What has gathered since the last write is lost when the process is killed.
 */
export class RepeatedWrite {
  readonly #write: () => Promise<void>;
  readonly #timer: NodeJS.Timeout;
  #last: Promise<void> = Promise.resolve();
  #isWriting = false;

  /** @param write must not reject */
  constructor(write: () => Promise<void>, intervalMs: number) {
    this.#write = write;
    this.#timer = setInterval(() => {
      if (!this.#isWriting) void this.#begin();
    }, intervalMs).unref();
  }

  /** Writes the rest, after a write that runs, and ends. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#begin();
  }

  #begin(): Promise<void> {
    this.#isWriting = true;
    this.#last = this.#last.then(this.#write).finally(() => {
      this.#isWriting = false;
    });

    return this.#last;
  }
}
