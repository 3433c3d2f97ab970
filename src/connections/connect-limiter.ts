const maxConnecting = 8;
/** Opening a connection takes 5 ms, or 20 ms on a busy server. One that does not finish must not block the others. */
const maxCountedMs = 250;

/**
 * Limits how many connections are opened at a time. Opening a connection evicts a useful one, and a busy server opens
 * many no faster than a few.
 */
export class ConnectLimiter {
  readonly #onRoom: () => void;
  #count = 0;

  /** @param onRoom called when an opening is no longer counted although it has not finished */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
  }

  /** How many more connections may be opened now. */
  get room(): number {
    return maxConnecting - this.#count;
  }

  /** Counts one opening until the returned function is called, for `maxCountedMs` at most. */
  begin(): () => void {
    this.#count++;
    let isCounted = true;
    const end = (): void => {
      clearTimeout(timer);
      if (isCounted) this.#count--;
      isCounted = false;
    };
    const timer = setTimeout(() => {
      end();
      this.#onRoom();
    }, maxCountedMs);
    return end;
  }
}
