import type { ControlDatabase } from '../../control/database.ts';
import { addEndingNotices } from './notice-requests.ts';

interface EndingKeysOptions {
  readonly control: ControlDatabase;
  /** The time of the control database, in ms since 1970. */
  readonly now: () => number;
  /** Called when notices were added. */
  readonly onAdded: () => void;
}

const intervalMs = 600_000;
/** How often the clock is read. */
const tickMs = 1_000;

/**
 * Looks every ten minutes for keys of programs that end soon, of all tenants. Each process does:
 * the database adds each notice once.
 */
export class EndingKeys {
  readonly #options: EndingKeysOptions;
  #timer: NodeJS.Timeout | undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(options: EndingKeysOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#tick(), tickMs).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    const now = this.#options.now();
    if (Math.abs(now - this.#lookedAt) < intervalMs) return;

    this.#lookedAt = now;
    void this.#look(now);
  }

  async #look(now: number): Promise<void> {
    try {
      if (await addEndingNotices(this.#options.control, now)) this.#options.onAdded();
    } catch {
      // The control database cannot be used, which its other users log.
      this.#lookedAt = Number.NEGATIVE_INFINITY;
    }
  }
}
