interface BreakerOptions {
  /**
   * Checks the service while the breaker is open, in the background: no request waits for it.
   */
  probe: () => Promise<unknown>;
  /** Called when the breaker opens, and after each failed probe. */
  onFailure: (cause: unknown) => void;
  onClose: () => void;
  /** Called when all probes of five seconds have failed, and again after each further five. */
  onStuck: (cause: unknown) => void;
}

const failuresToOpen = 3; // in succession: one lost connection is no reason to open
const probeIntervalMs = 500;
const failedProbesToBeStuck = 10;
/**
 * The number of good probes in succession that close the breaker. A single one may be luck,
 * where replies take about as long as the limit.
 */
const minGoodProbes = 3;
/**
 * The maximum of that number, which doubles each time the breaker opens soon after it was
 * closed.
 */
const maxGoodProbes = 20;
const soonMs = 60_000;

/**
 * A circuit breaker: makes no calls to a failing service, and probes it until it works again.
 */
export class Breaker {
  readonly #options: BreakerOptions;
  #failures = 0;
  #isOpen = false;
  #isStopped = false;
  #goodProbes = 0;
  #failedProbes = 0;
  #probesToClose = minGoodProbes;
  #closedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /** True while the breaker makes no calls. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Makes a call.
   * @returns undefined when the call fails, or when the breaker is open and the call was not
   *   made
   */
  async call<T>(work: () => Promise<T>): Promise<T | undefined> {
    if (this.#isOpen) return undefined;

    try {
      const result = await work();
      if (!this.#isOpen) this.#failures = 0;
      return result;
    } catch (error) {
      if (++this.#failures >= failuresToOpen && !this.#isOpen) this.#open(error);
      return undefined;
    }
  }

  /** Probes the service now, and opens the breaker if the probe fails. */
  async check(): Promise<void> {
    await this.#options.probe().catch(error => this.#open(error));
  }

  /** Ends the probes. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #open(cause: unknown): void {
    const isSoon = performance.now() - this.#closedAt < soonMs;
    this.#probesToClose = isSoon ? Math.min(2 * this.#probesToClose, maxGoodProbes) : minGoodProbes;
    this.#isOpen = true;
    this.#goodProbes = 0;
    this.#failedProbes = 0;

    this.#options.onFailure(cause);
    this.#scheduleProbe();
  }

  #scheduleProbe(): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => void this.#probe(), probeIntervalMs).unref();
  }

  async #probe(): Promise<void> {
    try {
      await this.#options.probe();
      if (this.#isStopped) return;
      if (++this.#goodProbes === this.#probesToClose) return this.#close();
    } catch (error) {
      if (this.#isStopped) return;
      this.#goodProbes = 0;
      this.#options.onFailure(error);
      if (++this.#failedProbes % failedProbesToBeStuck === 0) this.#options.onStuck(error);
    }

    this.#scheduleProbe();
  }

  #close(): void {
    this.#isOpen = false;
    this.#failures = 0;
    this.#closedAt = performance.now();

    this.#options.onClose();
  }
}
