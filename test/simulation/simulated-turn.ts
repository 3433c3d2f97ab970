/** The turn to have a connection to the control database without a grant. The kernel ends that of a dead process. */
export class SimulatedTurn {
  #holder: { readonly isDead: boolean } | undefined;

  /** @returns true if the process has the turn now */
  take(process: { readonly isDead: boolean }): boolean {
    if (!this.#holder || this.#holder.isDead) this.#holder = process;
    return this.#holder === process;
  }

  release(process: { readonly isDead: boolean }): void {
    if (this.#holder === process) this.#holder = undefined;
  }
}
