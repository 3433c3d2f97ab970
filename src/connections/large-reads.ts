import type { Deadline } from '../runtime/deadline.ts';
import { Read, type ReadMemory } from './read-memory.ts';

/** A statement with a large result counts as large for the next minute. */
const rememberMs = 60_000;

/**
 * Runs the large reads of one tenant one after the other. A list of 10 MB takes PostgreSQL and this process some 0.4 s
 * and 30 MB of memory; so a tenant that requests such lists without a pause keeps one core of its server busy, not
 * all, and other requests run in between. Small reads do not wait.
 *
 * A statement is known to be large only after its first large result. From then on its reads wait before they get a
 * connection. Until then they run together, and `ReadMemory` pauses all but one of those that turn out to be large. A
 * read that may sort a whole table takes as long, and waits in the same way.
 */
export class LargeReads {
  readonly #memory: ReadMemory;
  /**
   * The time until which a statement counts as large, by `performance.now()`. Bounded: names come from the source code.
   */
  readonly #largeUntil = new Map<string, number>();
  #last: Promise<unknown> = Promise.resolve();

  constructor(memory: ReadMemory) {
    this.#memory = memory;
  }

  /** True when the work has a large result in memory: it must not wait for other reads, which may wait for its end. */
  isHeldBy(work: Deadline | undefined): boolean {
    return this.#memory.isHeldBy(work);
  }

  /** True when the reads of the statement wait for each other. */
  isLarge(statement: string): boolean {
    return (this.#largeUntil.get(statement) ?? 0) >= performance.now();
  }

  /**
   * Runs a read in its turn.
   * @param statement name of the statement
   * @param query must count the bytes that it receives as those of the read
   * @param deadline of the work that holds the result; without one, the result counts only until it has arrived
   * @param isLong true when the read takes long whatever its result, and so waits as those of a large statement do
   */
  async run<T>(statement: string, query: (read: Read) => Promise<T>, deadline?: Deadline, isLong = false): Promise<T> {
    const run = () => this.runAtOnce(statement, query, deadline);
    if (!(isLong || this.isLarge(statement)) || this.isHeldBy(deadline)) return run();
    const reading = this.#last.then(run);
    this.#last = reading.catch(() => {});
    return reading;
  }

  /** Like `run`, for a read that has a connection: it must not wait for its turn. */
  async runAtOnce<T>(statement: string, query: (read: Read) => Promise<T>, deadline?: Deadline): Promise<T> {
    const read = new Read(this.#memory, this, deadline ?? {});
    try {
      return await query(read);
    } finally {
      if (read.isLarge) {
        this.#largeUntil.set(statement, performance.now() + rememberMs);
        if (deadline) deadline.onEnd(() => this.#memory.end(read.work));
        else this.#memory.end(read.work);
      }
    }
  }
}
