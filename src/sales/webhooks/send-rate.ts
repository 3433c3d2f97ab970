import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { maxEntries } from '../../lib/runtime/lru-bounds.ts';

/**
 * Maximum messages per second of one tenant: to one receiving host, which may never have agreed
 * to receive any, and to all hosts. As many may be sent at once after a pause.
 */
const maxPerSecond = { host: 50, tenant: 100 };

/**
 * The number of hosts that are remembered: more than a tenant has webhooks, so that a forgotten
 * host has received nothing for long.
 */
const maxHosts = 100;

/** Limits the rate at which messages of one tenant are sent. */
export class SendRate {
  readonly #all = new Pace(maxPerSecond.tenant);
  readonly #hosts = new LRUCache<string, Pace>(maxEntries(maxHosts));

  /**
   * Waits for the turn of a message. Ends early, without a turn, when `stopping` is aborted.
   */
  async turn(url: string, stopping: AbortSignal): Promise<void> {
    const { host } = new URL(url);
    let ofHost = this.#hosts.get(host);
    if (!ofHost) {
      ofHost = new Pace(maxPerSecond.host);
      this.#hosts.set(host, ofHost);
    }

    const now = performance.now();
    const waitMs = Math.max(this.#all.take(now), ofHost.take(now));
    if (waitMs > 0) await sleep(waitMs, undefined, { signal: stopping }).catch(() => {});
  }
}

/** The generic cell rate algorithm (ITU-T I.371): a bucket of tokens that needs one number. */
class Pace {
  readonly #intervalMs: number;
  readonly #burstMs: number;
  /** The time at which all tokens are back, on the monotonic clock. */
  #fullAt = 0;

  /** @param perSecond also how many may come at once */
  constructor(perSecond: number) {
    this.#intervalMs = 1_000 / perSecond;
    this.#burstMs = 1_000;
  }

  /**
   * Takes a token.
   * @returns the time to wait for the token, in ms
   */
  take(now: number): number {
    this.#fullAt = Math.max(this.#fullAt, now) + this.#intervalMs;

    return Math.max(0, this.#fullAt - now - this.#burstMs);
  }
}
