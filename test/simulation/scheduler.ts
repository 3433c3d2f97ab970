interface Task {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

/**
 * Runs tasks in the order of a simulated time, in ms. Tasks of the same time run in the order
 * of their scheduling.
 */
export class Scheduler {
  now = 0;
  /** A binary heap: the first task is the next one. */
  readonly #tasks: Task[] = [];
  #order = 0;

  after(delay: number, run: () => void): void {
    const task = { at: this.now + delay, order: this.#order++, run };
    const tasks = this.#tasks;
    let at = tasks.push(task) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (isBefore(tasks[parent] as Task, task)) break;
      tasks[at] = tasks[parent] as Task;
      at = parent;
    }
    tasks[at] = task;
  }

  /** Runs the tasks up to a time; `afterEach` is called after each of them. */
  runUntil(time: number, afterEach: () => void): void {
    while (this.runNext(time)) afterEach();
    this.now = time;
  }

  /**
   * Runs the next task if it is due at this time.
   * @returns false when none is
   */
  runNext(time: number): boolean {
    const next = this.#tasks[0];
    if (!next || next.at > time) return false;
    this.#removeFirst();
    this.now = next.at;
    next.run();
    return true;
  }

  #removeFirst(): void {
    const tasks = this.#tasks;
    const last = tasks.pop();
    if (!last || tasks.length === 0) return;
    let at = 0;
    for (let child = 1; child < tasks.length; child = 2 * at + 1) {
      if (child + 1 < tasks.length && isBefore(tasks[child + 1] as Task, tasks[child] as Task)) {
        child++;
      }
      if (isBefore(last, tasks[child] as Task)) break;
      tasks[at] = tasks[child] as Task;
      at = child;
    }
    tasks[at] = last;
  }
}

function isBefore(a: Task, b: Task): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
