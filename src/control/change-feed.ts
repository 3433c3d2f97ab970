import type pg from 'pg';
import type { Logger } from 'pino';
import { connectionConfig } from '../lib/postgres/connection.ts';
import { SessionClient } from '../lib/postgres/session-client.ts';
import { within } from '../lib/runtime/within.ts';
import type { Beat } from './beat.ts';
import { beatTopic, type ChangeTopic, changeChannel } from './change-topics.ts';

const heartbeatMs = 250;
/**
 * The time for which an answer of the connection counts, after its query was sent: a revocation
 * takes effect within 1 s.
 */
const answeredForMs = 900;
/** The time for which a beat that has come back counts, after it was sent. */
const beatForMs = 3_000;
const reconnectMs = 200;
/** Maximum wait of a start for its first beat. */
const maxDeliveryMs = 5_000;

/** A notification that the control database had accepted did not arrive. */
class NotDeliveredError extends Error {
  override name = 'NotDeliveredError';
  readonly code = 'NOT_DELIVERED';

  constructor() {
    super('notifications of the control database do not arrive');
  }
}

interface ChangeFeedOptions {
  /** URL of the control database. */
  url: string;
  /** The beat of this process: notified through the connection pool, as changes are. */
  beat: Pick<Beat, 'sentAt' | 'isConfirmed'>;
  log: Logger;
  /** The id of the process, with which the name of the connection ends. */
  processId?: string;
}

type ChangeHandler = (key: string) => void;

/** A connection that listens. Its moments are those of `performance.now()`. */
interface Listener {
  readonly client: pg.Client;
  readonly since: number;
  /** The time at which the last query was sent that the connection has answered. */
  answeredAt: number;
  /**
   * The time at which the last beat of this process was sent that the connection has returned.
   */
  beatAt: number;
}

/**
 * Receives a notification for each changed row of the control database, from any process:
 * triggers send them (`NOTIFY`).
 *
 * Memory may be served only while `current` is true, so within a second of a change that the
 * feed did not receive, and within four if its connection leads to another server than the
 * pool:
 *
 *   1. The connection has answered a `select 1` that was sent less than 900 ms ago. PostgreSQL
 *      delivers pending notifications before it completes a response, so every change whose
 *      commit had returned by then was received. A silent network counts as down.
 *   2. A beat of this process that was sent less than 3 s ago has come back on the connection.
 *      It goes through the pool of the control database, as changes do: one that leads to a
 *      pooler which listens on none of its connections, or to a server that is no longer the
 *      primary, does not return it.
 *   3. Changes between two connections are not received. So after each connect, every
 *      subscriber drops everything before `current` becomes true.
 */
export class ChangeFeed {
  readonly #options: ChangeFeedOptions;
  readonly #handlers = new Map<string, ChangeHandler>();
  readonly #firstBeat = Promise.withResolvers<void>();
  #listener: Listener | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;
  /** The reason why the feed is not current, for the log; undefined while it is. */
  #fault: string | undefined;

  constructor(options: ChangeFeedOptions) {
    this.#options = options;
  }

  /** True while rows in memory are known to be current. */
  get current(): boolean {
    const listener = this.#listener;
    if (!listener) return false;
    const now = performance.now();
    return now - listener.answeredAt < answeredForMs && now - listener.beatAt < beatForMs;
  }

  /**
   * Calls `invalidate` with the key of each change of a topic, or with `*` for all keys.
   * @throws when the topic has a subscriber already
   */
  subscribe(topic: ChangeTopic, invalidate: ChangeHandler): void {
    if (this.#handlers.has(topic)) {
      throw new Error(`the change topic ${topic} has a subscriber already`);
    }
    this.#handlers.set(topic, invalidate);
  }

  /**
   * Resolves when the feed is listening. It becomes current with the next beat.
   * @throws when the control database cannot be reached; `start` does not retry
   */
  async start(): Promise<void> {
    await this.#connect();
    this.#scheduleHeartbeat(heartbeatMs);
  }

  /**
   * Resolves when a beat of this process has come back. Call it when the process has begun to
   * beat.
   * @throws {NotDeliveredError} when none comes back within 5 s; the feed is stopped
   */
  async requireDelivery(): Promise<void> {
    try {
      await within(this.#firstBeat.promise, maxDeliveryMs);
    } catch {
      await this.stop();
      throw new NotDeliveredError();
    }
  }

  async stop(): Promise<void> {
    const client = this.#listener?.client;
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#listener = undefined;
    await client?.end().catch(() => {});
  }

  async #connect(): Promise<void> {
    const { url, processId } = this.#options;
    const client = new SessionClient({
      ...connectionConfig(url, 'change-feed', {}, processId),
      query_timeout: answeredForMs,
    });
    const never = Number.NEGATIVE_INFINITY;
    const listener: Listener = {
      client,
      since: performance.now(),
      answeredAt: never,
      beatAt: never,
    };
    client.on('error', () => this.#onLost(listener));
    client.on('end', () => this.#onLost(listener));
    client.on('notification', ({ payload = '*:*' }) => this.#receive(listener, payload));

    try {
      await client.connect();
      await client.query(`listen ${changeChannel}`);
      await this.#ask(listener);
      if (this.#stopped) throw new Error('the change feed was stopped while it connected');
    } catch (error) {
      client.end().catch(() => {});
      throw error;
    }

    this.#dispatch('*', '*');
    this.#listener = listener;
    if (this.current) this.#report();
  }

  #receive(listener: Listener, payload: string): void {
    const separator = payload.indexOf(':');
    const topic = payload.slice(0, separator);
    const key = payload.slice(separator + 1);
    if (topic === beatTopic) this.#receiveBeat(listener, key);
    else this.#dispatch(topic, key);
  }

  #receiveBeat(listener: Listener, key: string): void {
    const sentAt = this.#options.beat.sentAt(key);
    if (sentAt === undefined) return;

    listener.beatAt = sentAt;
    this.#firstBeat.resolve();
    if (listener === this.#listener) this.#report();
  }

  #dispatch(topic: string, key: string): void {
    if (topic === '*') for (const invalidate of this.#handlers.values()) invalidate('*');
    else this.#handlers.get(topic)?.(key);
  }

  #onLost(listener: Listener, error?: unknown): void {
    if (this.#listener !== listener) return;
    this.#listener = undefined;
    this.#report(
      error instanceof NotDeliveredError
        ? 'notifications do not arrive'
        : 'the connection was lost',
    );
  }

  /**
   * Logs a fault, and its end.
   * @param fault undefined: the feed is current
   */
  #report(fault?: string): void {
    if (fault === this.#fault) return;
    this.#fault = fault;
    const { log } = this.#options;
    if (!fault) {
      log.info({ event: 'change_feed_restored' }, 'the change feed is current again');
    } else {
      const message = `the change feed is not current, because ${fault}: nothing is served from memory`;
      log.warn({ event: 'change_feed_lost' }, message);
    }
  }

  #scheduleHeartbeat(afterMs: number): void {
    this.#timer = setTimeout(async () => {
      const nextMs = await this.#heartbeat();
      if (!this.#stopped) this.#scheduleHeartbeat(nextMs);
    }, afterMs).unref();
  }

  /**
   * Queries the connection, or connects again. Never rejects.
   * @returns the time until the next heartbeat, in ms
   */
  async #heartbeat(): Promise<number> {
    const listener = this.#listener;
    try {
      if (listener) await this.#check(listener);
      else await this.#connect();
      return heartbeatMs;
    } catch (error) {
      if (!listener) return reconnectMs;
      this.#onLost(listener, error);
      listener.client.end().catch(() => {});
      return reconnectMs;
    }
  }

  /**
   * Queries the connection, and checks that beats come back on it.
   * @throws {NotDeliveredError} when a confirmed beat has not come back: the connection may
   *   lead to another server
   */
  async #check(listener: Listener): Promise<void> {
    const oldest = performance.now() - beatForMs;
    // A confirmed beat was sent after `oldest`, and arrives before the answer.
    const { isConfirmed } = this.#options.beat;
    await this.#ask(listener);

    if (listener.beatAt > oldest || listener.since > oldest) return;
    if (isConfirmed) throw new NotDeliveredError();
    this.#report('no beat of this process was confirmed');
  }

  /** @throws when the connection does not answer within 900 ms */
  async #ask(listener: Listener): Promise<void> {
    const askedAt = performance.now();
    await listener.client.query('select 1');
    listener.answeredAt = askedAt;
  }
}
