/** The outcome of a write, as its client knows it. */
export interface Write {
  readonly value: string;
  readonly service: string;
  /**
   * The arrival of the response, by `performance.now()`; undefined without one: the write may
   * have had an effect.
   */
  acknowledgedAt: number | undefined;
  /** The time that the response has, in ISO 8601. */
  createdAt: string;
}

/** The writes of one tenant to one record or list, in the order of their start. */
export class FaultLedger {
  readonly #writes = new Map<string, Write>();

  get writes(): readonly Write[] {
    return [...this.#writes.values()];
  }

  /** Registers a write before it is sent. */
  begin(value: string, service: string): Write {
    const write: Write = { value, service, acknowledgedAt: undefined, createdAt: '' };
    this.#writes.set(value, write);
    return write;
  }

  has(value: string): boolean {
    return this.#writes.has(value);
  }

  /** The writes that were acknowledged before a time. */
  acknowledged(before = Number.POSITIVE_INFINITY): Write[] {
    return this.writes.filter(
      ({ acknowledgedAt }) => acknowledgedAt !== undefined && acknowledgedAt < before,
    );
  }
}
