/**
 * Maximum pings without an answer. With a ping a second, a worker is killed after 10 s without
 * any message from it.
 */
const maxUnanswered = 10;

/**
 * Finds workers that hang: those that serve, and answer no ping. It counts pings, and no time.
 * While this process is stopped, or its machine is suspended, it sends none, so its own pause
 * does not count against a worker.
 */
export class Pings {
  /** Pings since the last message of each worker that serves. */
  #unanswered = new Map<number, number>();

  /** Notes that the worker has sent a message, of any kind. */
  hear(worker: number): void {
    this.#unanswered.delete(worker);
  }

  /**
   * Counts a ping of each of these workers. Call it once a second.
   * @returns the workers that have left too many unanswered, each of them once
   */
  count(serving: readonly number[]): number[] {
    const counts = serving.map((worker): [number, number] => [
      worker,
      (this.#unanswered.get(worker) ?? 0) + 1,
    ]);
    this.#unanswered = new Map(counts);
    return counts.flatMap(([worker, count]) => (count === maxUnanswered + 1 ? [worker] : []));
  }
}
