const maxConnecting = 8;
const soonMs = 250; // an opening takes 5 ms, or 20 where the server is busy; one that does not end holds up no other

/**
 * How many connections are being opened at a time. Each has taken the place of one that was of use, and on a busy server
 * many are opened no sooner than a few.
 */
export class ConnectLimiter {
  readonly #onRoom: () => void;
  #count = 0;

  /** @param onRoom called when there is room again, though no opening has ended */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
  }

  /** How many more may be opened now. */
  get room(): number {
    return maxConnecting - this.#count;
  }

  /** Counts one, until what is returned is called, but not for long. */
  begin(): () => void {
    this.#count++;
    let counts = true;
    const end = (): void => {
      clearTimeout(timer);
      if (counts) this.#count--;
      counts = false;
    };
    const timer = setTimeout(() => {
      end();
      this.#onRoom();
    }, soonMs);
    return end;
  }
}
