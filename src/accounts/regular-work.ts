interface RegularWorkOptions {
  /** The time of the control database, in ms since 1970. */
  readonly now: () => number;
  /** Does the work of all tenants that is due at a time, in ms since 1970. */
  readonly work: (now: number) => Promise<void>;
}

const intervalMs = 600_000;
/** How often the clock is read. */
const tickMs = 1_000;

/**
 * Does the work every ten minutes that no request waits for, of all tenants. Each process does:
 * the database does each thing once.
 */
export class RegularWork {
  readonly #options: RegularWorkOptions;
  #timer: NodeJS.Timeout | undefined;
  #doneAt = Number.NEGATIVE_INFINITY;
  #isRunning = false;

  constructor(options: RegularWorkOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#tick(), tickMs).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Lets the work be done within a second: a request has made some. */
  wake(): void {
    this.#doneAt = Number.NEGATIVE_INFINITY;
  }

  #tick(): void {
    const now = this.#options.now();
    if (this.#isRunning || Math.abs(now - this.#doneAt) < intervalMs) return;

    this.#doneAt = now;
    void this.#run(now);
  }

  async #run(now: number): Promise<void> {
    this.#isRunning = true;
    try {
      await this.#options.work(now);
    } catch {
      // The control database cannot be used, which its other users log.
      this.wake();
    } finally {
      this.#isRunning = false;
    }
  }
}
