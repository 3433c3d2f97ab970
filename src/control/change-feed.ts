import pg from 'pg';
import type { Logger } from 'pino';
import { connectionConfig } from '../postgres/connection.ts';
import { type ChangeTopic, changeChannel } from './change-topics.ts';

const heartbeatMs = 250;
/** A revocation takes effect within 1 s, so the feed counts as current only for this time after the last proof. */
const currentForMs = 900;
const reconnectMs = 200;

type ChangeHandler = (key: string) => void;

/**
 * Receives a notification for each changed row of the control database, from any process: triggers send them
 * (`NOTIFY`).
 *
 * A cache of rows in memory may serve them only while `current` is true:
 *
 *   1. `current` is true for 900 ms after the sending of the last `select 1` that this connection has answered. A
 *      silent network therefore counts as down.
 *   2. PostgreSQL delivers pending notifications before it completes an answer. So at each proof, this process has
 *      received every change whose commit had returned before the proof was sent.
 *   3. Changes that were committed between two connections are not received. So after each connect, every subscriber
 *      drops everything before `current` becomes true.
 */
export class ChangeFeed {
  readonly #url: string;
  readonly #log: Logger;
  readonly #handlers = new Map<string, ChangeHandler>();
  #client: pg.Client | undefined;
  #timer: NodeJS.Timeout | undefined;
  #provenAt = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(url: string, log: Logger) {
    this.#url = url;
    this.#log = log;
  }

  /** True while rows in memory are known to be current. */
  get current(): boolean {
    return performance.now() - this.#provenAt < currentForMs;
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
   */
  async start(): Promise<void> {
    await this.#connect();
    this.#scheduleHeartbeat(heartbeatMs);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#provenAt = Number.NEGATIVE_INFINITY;
    await this.#client?.end().catch(() => {});
  }

  async #connect(): Promise<void> {
    const client = new pg.Client({
      ...connectionConfig(this.#url, 'change-feed'),
      query_timeout: currentForMs,
      keepAlive: true,
    });
    client.on('error', () => this.#onLost(client));
    client.on('end', () => this.#onLost(client));
    client.on('notification', message => this.#dispatch(message.payload ?? '*:*'));
    try {
      await client.connect();
      await client.query(`listen ${changeChannel}`);
      if (this.#stopped) throw new Error('the change feed was stopped while it connected');
    } catch (error) {
      client.end().catch(() => {});
      throw error;
    }
    this.#client = client;
    this.#dispatch('*:*');
    this.#provenAt = performance.now();
  }

  #dispatch(payload: string): void {
    const separator = payload.indexOf(':');
    const [topic, key] = [payload.slice(0, separator), payload.slice(separator + 1)];
    if (topic === '*') for (const invalidate of this.#handlers.values()) invalidate('*');
    else this.#handlers.get(topic)?.(key);
  }

  #onLost(client: pg.Client): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    this.#provenAt = Number.NEGATIVE_INFINITY;
    if (!this.#stopped)
      this.#log.warn({ event: 'change_feed_lost' }, 'the change feed is down: nothing is served from memory');
  }

  #scheduleHeartbeat(afterMs: number): void {
    this.#timer = setTimeout(() => {
      this.#heartbeat().then(
        next => {
          if (!this.#stopped) this.#scheduleHeartbeat(next);
        },
        () => {},
      );
    }, afterMs).unref();
  }

  /** Proves that the connection is alive, or connects again. Resolves to the time until the next heartbeat, in ms. */
  async #heartbeat(): Promise<number> {
    const client = this.#client;
    try {
      if (client) {
        const sentAt = performance.now();
        await client.query('select 1');
        if (this.#client === client) this.#provenAt = sentAt;
      } else {
        await this.#connect();
        this.#log.info({ event: 'change_feed_restored' }, 'the change feed is connected again');
      }
      return heartbeatMs;
    } catch {
      if (client) {
        this.#onLost(client);
        client.end().catch(() => {});
      }
      return reconnectMs;
    }
  }
}
