import { AsyncLocalStorage } from 'node:async_hooks';

/** A request has a response within 10 s: half a second is for what its deadline cannot end, such as sending it. */
export const requestDeadlineMs = 9_500;

const current = new AsyncLocalStorage<Deadline | undefined>();

/** The deadline has passed: nothing more may be started for the request. Its client receives `unavailable`. */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
  readonly code = 'DEADLINE';

  constructor() {
    super('the request reached its deadline');
  }
}

/** The moment at which a request must stop waiting: for its turn, a connection, a query, another request's result. */
export class Deadline {
  #remainingMs: number;
  readonly #reject: (error: DeadlineError) => void;
  readonly #listeners = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;
  #startedAt = 0;
  #state: 'running' | 'passed' | 'ended' = 'running';

  /** @param reject called after the listeners, when what they ended has had the time to report why */
  constructor(ms: number, reject: (error: DeadlineError) => void) {
    this.#remainingMs = ms;
    this.#reject = reject;
    this.#start();
  }

  get passed(): boolean {
    return this.#state === 'passed';
  }

  /** @throws {DeadlineError} when the deadline has passed */
  check(): void {
    if (this.passed) throw new DeadlineError();
  }

  /** Calls `listener` when the deadline passes, unless the work ends before. @returns a function that removes it */
  onPass(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Does not count the time that `wait` takes: a client that sends its body slowly takes none of the service's time. */
  async notCounting<T>(wait: () => Promise<T>): Promise<T> {
    clearTimeout(this.#timer);
    this.#remainingMs -= performance.now() - this.#startedAt;
    try {
      return await wait();
    } finally {
      if (this.#state === 'running') this.#start();
    }
  }

  /** The work has ended; what it left behind, such as a mail to send, has no deadline. */
  end(): void {
    clearTimeout(this.#timer);
    this.#listeners.clear();
    if (this.#state === 'running') this.#state = 'ended';
  }

  #start(): void {
    this.#startedAt = performance.now();
    this.#timer = setTimeout(() => this.#pass(), Math.max(1, this.#remainingMs));
  }

  #pass(): void {
    this.#state = 'passed';
    for (const listener of [...this.#listeners]) listener();
    // A destroyed connection rejects its queries before that, and a write whose commit was sent reports so.
    setImmediate(() => this.#reject(new DeadlineError()));
  }
}

/** Returns the deadline of the request, or the shared work, that calls this; undefined when there is none. */
export function currentDeadline(): Deadline | undefined {
  return current.getStore();
}

/**
 * Runs work that must end within `ms`; also work that several requests share, whose own deadlines it does not heed.
 * @throws {DeadlineError} when the deadline passes. The work goes on, but gets no connection any more
 */
export function withDeadline<T>(ms: number, work: () => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const deadline = new Deadline(ms, reject);
    current
      .run(deadline, work)
      .then(resolve, reject)
      .finally(() => deadline.end());
  });
}

/** Runs work that goes on after the response of the request that begins it. */
export function withoutDeadline<T>(work: () => T): T {
  return current.run(undefined, work);
}
