import { randomUUID } from 'node:crypto';
import { type Clock, processClock } from '../runtime/clock.ts';
import type { Announce } from './announcer.ts';
import { deliveryTopic } from './change-topics.ts';

/** The feed sends a nonce this long after the last one that came back. */
const defaultEveryMs = 10_000;
/**
 * Maximum time that a busy connection pool takes to send a nonce. A feed that has received no nonce for longer than
 * both times is not current.
 */
const maxSendMs = 5_000;

/** A notification that the control database had accepted did not arrive. */
export class NotDeliveredError extends Error {
  override name = 'NotDeliveredError';
  readonly code = 'NOT_DELIVERED';

  constructor() {
    super('notifications of the control database do not arrive');
  }
}

interface Nonce {
  readonly payload: string;
  readonly sentAt: number;
  /** When the control database had accepted it. */
  acceptedAt: number;
}

/**
 * Proves that a connection of the change feed receives what is announced: announces a nonce, as every write announces
 * itself, and expects it on that connection. A successful query proves only that something responds. A pooler that
 * listens on none of its connections does so too, and a server that is no longer the primary.
 */
export class DeliveryCheck {
  readonly #announce: Announce;
  readonly #everyMs: number;
  readonly #clock: Clock;
  /** The nonce that has not come back yet. */
  #pending: Nonce | undefined;
  #provenAt = Number.NEGATIVE_INFINITY;

  constructor(announce: Announce, everyMs = defaultEveryMs, clock = processClock) {
    this.#announce = announce;
    this.#everyMs = everyMs;
    this.#clock = clock;
  }

  /** True while the last nonce that came back was sent recently. */
  get current(): boolean {
    return this.#clock.now() - this.#provenAt < this.#everyMs + maxSendMs;
  }

  /** True when another nonce is to be sent. */
  get due(): boolean {
    return !this.#pending && this.#clock.now() - this.#provenAt >= this.#everyMs;
  }

  /** Announces a nonce. Resolves when the control database has accepted it. @throws when it was not sent */
  async send(): Promise<void> {
    const key = randomUUID();
    const nonce = {
      payload: `${deliveryTopic}:${key}`,
      sentAt: this.#clock.now(),
      acceptedAt: Number.POSITIVE_INFINITY,
    };
    this.#pending = nonce;
    try {
      await this.#announce(deliveryTopic, key);
      nonce.acceptedAt = this.#clock.now();
    } catch (error) {
      if (this.#pending === nonce) this.#pending = undefined;
      throw error;
    }
  }

  /** Takes a notification that has arrived on the connection. */
  receive(payload: string): void {
    if (this.#pending?.payload !== payload) return;
    this.#provenAt = this.#pending.sentAt;
    this.#pending = undefined;
  }

  /**
   * Checks a connection on which a query has succeeded: PostgreSQL delivers pending notifications before it responds.
   * @param queriedAt when the query was sent
   * @throws {NotDeliveredError} when a nonce that had been accepted before has not arrived
   */
  check(queriedAt: number): void {
    if (this.#pending && this.#pending.acceptedAt <= queriedAt) throw new NotDeliveredError();
  }
}
