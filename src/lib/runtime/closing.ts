/** Undoes the steps of a start, in reverse order. */
export class Closing {
  readonly #steps: (() => unknown)[] = [];

  /** @param step undoes the step of the start that was just made; may return a promise */
  add(step: () => unknown): void {
    this.#steps.push(step);
  }

  /**
   * Runs the steps one after the other, each of them once.
   * @throws what a step throws; those after it do not run
   */
  async close(): Promise<void> {
    for (const step of this.#steps.splice(0).reverse()) {
      await step();
    }
  }
}
