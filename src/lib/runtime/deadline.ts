import type { Trace } from '../tracing/trace.ts';

/**
 * The deadline of a request, which has a response within 10 s: half a second is for the work
 * that the deadline cannot end, such as sending the response.
 */
export const requestDeadlineMs = 9_500;
/**
 * Minimum time for the response of a request whose change is made: otherwise its client would
 * be asked to send it again. The request needs a quarter of a second at most, to announce the
 * change, unless this process is stalled.
 */
export const answerMs = 2_000;

/**
 * The deadline has passed: nothing more may be started for the request. Its client receives
 * `unavailable`.
 */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
  readonly code = 'DEADLINE';

  constructor() {
    super('the request reached its deadline');
  }
}

/**
 * The moment at which a request must stop waiting: for its turn, a connection, a query, the
 * result of another request. It has no timer of its own, because a timer would cost too much
 * for a request that never waits: see `RunningDeadlines`.
 */
export class Deadline {
  /**
   * The span of the work, below which its steps are traced; undefined when the work is not
   * traced.
   */
  trace: Trace | undefined = undefined;
  #endsAt: number;
  readonly #reject: (error: DeadlineError) => void;
  #listeners: Set<() => void> | undefined;
  #endListeners: (() => void)[] | undefined;
  #passed = false;
  #ended = false;

  /**
   * @param reject called after the listeners, once the work that they ended has had time to
   *   report its own error
   */
  constructor(ms: number, reject: (error: DeadlineError) => void) {
    this.#endsAt = performance.now() + ms;
    this.#reject = reject;
    running.add(this);
  }

  get passed(): boolean {
    return this.#passed;
  }

  /** Milliseconds until the deadline. */
  get leftMs(): number {
    return this.#endsAt - performance.now();
  }

  /** @throws {DeadlineError} when the deadline has passed */
  throwIfPassed(): void {
    if (this.#passed) throw new DeadlineError();
  }

  /**
   * Calls `listener` when the deadline passes; at once if it has passed already, and never if
   * the work ends before.
   * @returns a function that removes the listener
   */
  onPass(listener: () => void): () => void {
    if (this.#passed) {
      listener();
      return () => {};
    }
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
    return () => this.#listeners?.delete(listener);
  }

  /** Moves the deadline to `ms` from now, unless it is later. */
  extend(ms: number): void {
    this.#endsAt = Math.max(this.#endsAt, performance.now() + ms);
  }

  /**
   * Waits, and moves the deadline by the time of the wait: a client that sends its body slowly
   * does not cost the service time.
   */
  async notCounting<T>(wait: () => Promise<T>): Promise<T> {
    running.remove(this);
    const startedAt = performance.now();
    try {
      return await wait();
    } finally {
      this.#endsAt += performance.now() - startedAt;
      if (!this.#ended) running.add(this);
    }
  }

  /**
   * Calls `listener` when the work has ended, also when that is after the deadline; at once if
   * it has ended already.
   */
  onEnd(listener: () => void): void {
    if (this.#ended) {
      listener();
      return;
    }
    this.#endListeners ??= [];
    this.#endListeners.push(listener);
  }

  /** Must be called when the work has ended. */
  end(): void {
    this.#ended = true;
    this.#listeners = undefined;
    running.remove(this);
    if (!this.#endListeners) return;
    for (const listener of this.#endListeners) listener();
    this.#endListeners = undefined;
  }

  /** Called regularly while the deadline runs. */
  passIfDue(now: number): void {
    if (now < this.#endsAt) return;
    running.remove(this);
    this.#passed = true;
    for (const listener of [...(this.#listeners ?? [])]) listener();
    // Before this callback runs, a destroyed connection rejects its queries, so a write reports
    // that its commit was sent.
    setImmediate(() => this.#reject(new DeadlineError()));
  }
}

const tickMs = 100;

/** The deadlines of all running requests, which one timer checks. */
class RunningDeadlines {
  readonly #deadlines = new Set<Deadline>();
  #timer: NodeJS.Timeout | undefined;

  add(deadline: Deadline): void {
    this.#deadlines.add(deadline);
    this.#timer ??= setInterval(() => this.#tick(), tickMs).unref();
  }

  remove(deadline: Deadline): void {
    this.#deadlines.delete(deadline);
  }

  #tick(): void {
    if (this.#deadlines.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    const now = performance.now();
    for (const deadline of this.#deadlines) deadline.passIfDue(now);
  }
}

const running = new RunningDeadlines();

/**
 * Runs work that must end within `ms`, to a tenth of a second. Pass the deadline to everything
 * that the work waits for.
 * @throws {DeadlineError} when the deadline passes. The work continues, but can no longer get a
 *   connection to a tenant database
 */
export function withDeadline<T>(ms: number, work: (deadline: Deadline) => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const deadline = new Deadline(ms, reject);
    work(deadline).then(
      result => {
        deadline.end();
        resolve(result);
      },
      error => {
        deadline.end();
        reject(error);
      },
    );
  });
}
