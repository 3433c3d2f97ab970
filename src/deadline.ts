/** A request has a response within 10 s: half a second is for what its deadline cannot end, such as sending it. */
export const requestDeadlineMs = 9_500;

/** The deadline has passed: nothing more may be started for the request. Its client receives `unavailable`. */
export class DeadlineError extends Error {
  override name = 'DeadlineError';
  readonly code = 'DEADLINE';

  constructor() {
    super('the request reached its deadline');
  }
}

/**
 * The moment at which a request must stop waiting: for its turn, a connection, a query, another request's result. It has
 * no timer of its own, so a request that waits for nothing pays for none: see `RunningDeadlines`.
 */
export class Deadline {
  /** The neighbours in the list of `RunningDeadlines`; undefined when the deadline is not in the list. */
  previous: Deadline | undefined;
  next: Deadline | undefined;
  #endsAt: number;
  readonly #reject: (error: DeadlineError) => void;
  #listeners: Set<() => void> | undefined;
  #passed = false;
  #ended = false;

  /** @param reject called after the listeners, when what they ended has had the time to report why */
  constructor(ms: number, reject: (error: DeadlineError) => void) {
    this.#endsAt = performance.now() + ms;
    this.#reject = reject;
    running.add(this);
  }

  get passed(): boolean {
    return this.#passed;
  }

  /** @throws {DeadlineError} when the deadline has passed */
  check(): void {
    if (this.#passed) throw new DeadlineError();
  }

  /** Calls `listener` when the deadline passes, unless the work ends before. @returns a function that removes it */
  onPass(listener: () => void): () => void {
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
    return () => this.#listeners?.delete(listener);
  }

  /** Does not count the time that `wait` takes: a client that sends its body slowly takes none of the service's time. */
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

  /** The work has ended. */
  end(): void {
    this.#ended = true;
    this.#listeners = undefined;
    running.remove(this);
  }

  /** Called regularly while the deadline runs. */
  passIfDue(now: number): void {
    if (now < this.#endsAt) return;
    running.remove(this);
    this.#passed = true;
    for (const listener of [...(this.#listeners ?? [])]) listener();
    // A destroyed connection rejects its queries before that, and a write whose commit was sent reports so.
    setImmediate(() => this.#reject(new DeadlineError()));
  }
}

const tickMs = 100;

/**
 * The deadlines of all running requests: a linked list, and one timer that looks through it. A timer for each request
 * would cost more than everything else that a cached response needs from this file.
 */
class RunningDeadlines {
  #first: Deadline | undefined;
  #timer: NodeJS.Timeout | undefined;

  add(deadline: Deadline): void {
    deadline.next = this.#first;
    if (this.#first) this.#first.previous = deadline;
    this.#first = deadline;
    this.#timer ??= setInterval(() => this.#tick(), tickMs).unref();
  }

  /** Does nothing when the deadline is not in the list. */
  remove(deadline: Deadline): void {
    const { previous, next } = deadline;
    if (previous) previous.next = next;
    else if (this.#first === deadline) this.#first = next;
    if (next) next.previous = previous;
    deadline.previous = undefined;
    deadline.next = undefined;
  }

  #tick(): void {
    if (!this.#first) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    const now = performance.now();
    let deadline = this.#first;
    while (deadline) {
      const { next } = deadline; // a deadline that passes leaves the list
      deadline.passIfDue(now);
      deadline = next;
    }
  }
}

const running = new RunningDeadlines();

/**
 * Runs work that must end within `ms`, to a tenth of a second. Pass the deadline on to whatever the work waits for.
 * @throws {DeadlineError} when the deadline passes. The work goes on, but gets no connection to a tenant database any more
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
