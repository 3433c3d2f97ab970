import pg from 'pg';
import type { Logger } from 'pino';
import { connectionConfig, sessionStatement } from '../postgres/connection.ts';
import { type Clock, processClock, type Timer } from '../runtime/clock.ts';
import type { Announce } from './announcer.ts';
import { type ChangeTopic, changeChannel } from './change-topics.ts';
import { DeliveryCheck, NotDeliveredError } from './delivery-check.ts';

const heartbeatMs = 250;
/** A revocation takes effect within 1 s, so the feed counts as current only for this time after its last query. */
const currentForMs = 900;
const reconnectMs = 200;

interface ChangeFeedOptions {
  /** URL of the control database. */
  url: string;
  /** Announces through the connection pool, as writes do. */
  announce: Announce;
  log: Logger;
  /** The name of the connection ends with it. */
  processId?: string;
  /** Interval of the checks that notifications arrive, in ms; shortened in tests. */
  deliveryCheckMs?: number;
  /** Replaced in simulations, as is `createClient`. */
  clock?: Clock;
  createClient?: (config: pg.ClientConfig) => pg.Client;
}

type ChangeHandler = (key: string) => void;

/**
 * Receives a notification for each changed row of the control database, from any process: triggers send them
 * (`NOTIFY`).
 *
 * A cache of rows in memory may serve them only while `current` is true:
 *
 *   1. `current` is true for 900 ms from the moment at which the last successful `select 1` of this connection was
 *      sent. A silent network therefore counts as down.
 *   2. PostgreSQL delivers pending notifications before it completes a response. So when `select 1` succeeds,
 *      this process has received every change whose commit had returned before that was sent.
 *   3. `DeliveryCheck` proves that the connection receives notifications at all, after it was opened and every 10 s.
 *      If they do not arrive, the connection counts as lost.
 *   4. Changes that were committed between two connections are not received. So after each connect, every subscriber
 *      drops everything before `current` becomes true.
 */
export class ChangeFeed {
  readonly #options: ChangeFeedOptions;
  readonly #clock: Clock;
  readonly #handlers = new Map<string, ChangeHandler>();
  #client: pg.Client | undefined;
  #delivery: DeliveryCheck | undefined;
  #timer: Timer | undefined;
  #provenAt = Number.NEGATIVE_INFINITY;
  #stopped = false;
  /** Why the feed is not proved, as the log says; undefined while it is. */
  #fault: string | undefined;

  constructor(options: ChangeFeedOptions) {
    this.#options = options;
    this.#clock = options.clock ?? processClock;
  }

  /** True while rows in memory are known to be current. */
  get current(): boolean {
    return this.#clock.now() - this.#provenAt < currentForMs && (this.#delivery?.current ?? false);
  }

  /**
   * Calls `invalidate` with the key of each change of a topic, or with `*` for all keys.
   * @throws when the topic has a subscriber already
   */
  subscribe(topic: ChangeTopic, invalidate: ChangeHandler): void {
    if (this.#handlers.has(topic)) throw new Error(`the change topic ${topic} has a subscriber already`);
    this.#handlers.set(topic, invalidate);
  }

  /**
   * Resolves when the feed is listening.
   * @throws when the control database cannot be reached; `start` does not retry
   * @throws {NotDeliveredError} when notifications do not arrive
   */
  async start(): Promise<void> {
    await this.#connect();
    this.#scheduleHeartbeat(heartbeatMs);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#clock.clearTimeout(this.#timer);
    this.#provenAt = Number.NEGATIVE_INFINITY;
    await this.#client?.end().catch(() => {});
  }

  async #connect(): Promise<void> {
    const { url, announce, deliveryCheckMs, processId, createClient = config => new pg.Client(config) } = this.#options;
    const delivery = new DeliveryCheck(announce, deliveryCheckMs, this.#clock);
    const client = createClient({
      ...connectionConfig(url, 'change-feed', {}, processId),
      query_timeout: currentForMs,
    });
    client.on('error', () => this.#onLost(client));
    client.on('end', () => this.#onLost(client));
    client.on('notification', ({ payload = '*:*' }) => {
      delivery.receive(payload);
      this.#dispatch(payload);
    });
    let provenAt: number;
    try {
      await client.connect();
      await client.query(sessionStatement);
      await client.query(`listen ${changeChannel}`);
      await delivery.send();
      provenAt = await this.#prove(client, delivery);
      if (this.#stopped) throw new Error('the change feed was stopped while it connected');
    } catch (error) {
      client.end().catch(() => {});
      throw error;
    }
    this.#client = client;
    this.#delivery = delivery;
    this.#dispatch('*:*');
    this.#provenAt = provenAt;
  }

  #dispatch(payload: string): void {
    const separator = payload.indexOf(':');
    const [topic, key] = [payload.slice(0, separator), payload.slice(separator + 1)];
    if (topic === '*') for (const invalidate of this.#handlers.values()) invalidate('*');
    else this.#handlers.get(topic)?.(key);
  }

  #onLost(client: pg.Client, error?: unknown): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    this.#provenAt = Number.NEGATIVE_INFINITY;
    if (this.#stopped) return;
    this.#report(error instanceof NotDeliveredError ? 'notifications do not arrive' : 'the connection was lost');
  }

  /** Logs a fault, and its end. @param fault undefined: the feed is proved */
  #report(fault?: string): void {
    if (fault === this.#fault) return;
    this.#fault = fault;
    const { log } = this.#options;
    if (!fault) log.info({ event: 'change_feed_restored' }, 'the change feed is proved again');
    else {
      const message = `the change feed is not proved, because ${fault}: nothing is served from memory`;
      log.warn({ event: 'change_feed_lost' }, message);
    }
  }

  #scheduleHeartbeat(afterMs: number): void {
    this.#timer = this.#clock.setTimeout(() => {
      this.#heartbeat().then(
        next => {
          if (!this.#stopped) this.#scheduleHeartbeat(next);
        },
        () => {},
      );
    }, afterMs);
    this.#timer.unref();
  }

  /** Proves that the connection is alive, or connects again. Resolves to the time until the next heartbeat, in ms. */
  async #heartbeat(): Promise<number> {
    const [client, delivery] = [this.#client, this.#delivery];
    try {
      if (client && delivery) {
        if (delivery.due) delivery.send().catch(() => {}); // sent again with the next heartbeat
        const provenAt = await this.#prove(client, delivery);
        if (this.#client === client) this.#provenAt = provenAt;
        this.#report(delivery.current ? undefined : 'no notification could be sent'); // the connection pool is busy
      } else {
        await this.#connect();
        this.#report();
      }
      return heartbeatMs;
    } catch (error) {
      if (client) {
        this.#onLost(client, error);
        client.end().catch(() => {});
      }
      return reconnectMs;
    }
  }

  /**
   * Proves that the connection is alive, and that it has received every notification up to now.
   * @returns the moment of the check, by the clock of the feed
   */
  async #prove(client: pg.Client, delivery: DeliveryCheck): Promise<number> {
    const queriedAt = this.#clock.now();
    await client.query('select 1');
    delivery.check(queriedAt);
    return queriedAt;
  }
}
