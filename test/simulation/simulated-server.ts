/** A PostgreSQL server: the connections that exist there, by the name of their process. */
export class SimulatedServer {
  /** Grows with every change of the connections. */
  version = 0;
  readonly #counts = new Map<string, number>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  add(name: string): void {
    this.#counts.set(name, this.count(name) + 1);
    this.#total++;
    this.version++;
  }

  remove(name: string): void {
    this.#counts.set(name, this.count(name) - 1);
    this.#total--;
    this.version++;
  }

  count(name: string): number {
    return this.#counts.get(name) ?? 0;
  }
}
