import { setTimeout as delay } from 'node:timers/promises';
import { maxNested } from '../../budget/fair-shares.ts';
import type { GrantLoop, LimitedConnections } from '../../connections/grant-loop.ts';
import { OperatorError } from '../../log/operator-error.ts';

/** Services give back within a second, and a killed one is found after four. */
const maxWaitMs = 30_000;
const noticeMs = 3_000;
const pollMs = 20;

interface GrantedOptions {
  /** The address of the server, for messages. */
  address: string;
  /** `CONNECTION_BUDGET` */
  budget: number;
  onWait: (text: string) => void;
}

/** The connections of a command to one server, as far as they are not those of the pool of the control database. */
export class GrantedConnections implements LimitedConnections {
  readonly loop: GrantLoop;
  readonly #options: GrantedOptions;
  #max = 0;
  #open = 0;
  #peak = 0;
  #waiting = 0;
  #progressAt = Number.NEGATIVE_INFINITY;

  constructor(loop: GrantLoop, options: GrantedOptions) {
    this.loop = loop;
    this.#options = options;
  }

  get usage(): { open: number; inUse: number } {
    return { open: this.#open, inUse: this.#open };
  }

  /** Connections for the waiting tasks, and for those that one of them opens while it has its first one. */
  get unmetDemand(): number {
    return this.#waiting > 0 ? this.#waiting - 1 + maxNested : 0;
  }

  takePeakInUse(): number {
    const peak = this.#peak;
    this.#peak = this.#open;
    return peak;
  }

  setMax(max: number): void {
    this.#max = max;
  }

  /** As `ConnectionGate.acquire`. Leaves one for another task if it may take several. */
  async acquire(max: number): Promise<{ count: number; release: () => void }> {
    this.#waiting++;
    try {
      await this.waitUntil(() => this.#open < this.#max && this.loop.mayOpen());
    } finally {
      this.#waiting--;
    }
    const count = Math.min(max, Math.max(1, this.#max - this.#open - 1));
    this.#add(count);
    return { count, release: () => this.#add(-count) };
  }

  /** @throws {OperatorError} when the condition is false and no connection was opened or closed for 30 s */
  async waitUntil(condition: () => boolean): Promise<void> {
    const startedAt = performance.now();
    const { address, budget, onWait } = this.#options;
    let hasNotified = false;
    while (!condition()) {
      const now = performance.now();
      if (now - Math.max(startedAt, this.#progressAt) > maxWaitMs)
        throw new OperatorError(
          `No connection to ${address} became free for 30 s: the processes use all of CONNECTION_BUDGET (${budget}). ` +
            'See which: npx backoffice processes. Then raise CONNECTION_BUDGET in all processes, or end some of them',
        );
      if (!hasNotified && now - startedAt > noticeMs) {
        hasNotified = true;
        onWait(`Waiting up to 30 s until a connection to ${address} is free within CONNECTION_BUDGET (${budget})`);
      }
      await (this.loop.tick() ?? delay(pollMs));
    }
  }

  #add(count: number): void {
    this.#open += count;
    this.#peak = Math.max(this.#peak, this.#open);
    this.#progressAt = performance.now();
  }
}
