export interface Worker {
  state: 'starting' | 'serving' | 'ending';
  /** The moment at which the worker is killed, unless it has started or ended by then. */
  killAt?: number | undefined;
  /** The reason why the worker cannot start, as it reported. */
  failure?: string;
}

/**
 * Time limits of a worker: from its fork until it serves; and from the request to end until its
 * end. In milliseconds.
 */
export const maxStartMs = 60_000;
export const maxEndMs = 35_000;

/**
 * The workers of a primary process, by number, and how long each of them may take to start and
 * to end.
 */
export class WorkerTable {
  readonly #workers = new Map<number, Worker>();
  #last = 0;

  get size(): number {
    return this.#workers.size;
  }

  /** The time at which the next worker must be killed; Infinity when none must be. */
  get nextKillAt(): number {
    return Math.min(...[...this.#workers.values()].map(worker => worker.killAt ?? Infinity));
  }

  get(number: number): Worker | undefined {
    return this.#workers.get(number);
  }

  in(state: Worker['state']): number[] {
    return [...this.#workers]
      .filter(([, worker]) => worker.state === state)
      .map(([number]) => number);
  }

  /**
   * Adds a worker that starts now.
   * @returns its number
   */
  add(now: number): number {
    this.#workers.set(++this.#last, { state: 'starting', killAt: now + maxStartMs });
    return this.#last;
  }

  serves(worker: Worker): void {
    worker.state = 'serving';
    worker.killAt = undefined;
  }

  /** Notes that a worker is about to end. */
  ends(number: number, now: number): void {
    const worker = this.#workers.get(number);
    if (worker) Object.assign(worker, { state: 'ending', killAt: now + maxEndMs });
  }

  /** Removes a worker that has ended, and returns it. */
  remove(number: number): Worker | undefined {
    const worker = this.#workers.get(number);
    this.#workers.delete(number);
    return worker;
  }

  /** Returns the workers that must be killed now, each of them once. */
  takeLate(now: number): number[] {
    const late = [...this.#workers].filter(
      ([, { killAt }]) => killAt !== undefined && killAt <= now,
    );
    for (const [, worker] of late) worker.killAt = undefined;
    return late.map(([number]) => number);
  }
}
