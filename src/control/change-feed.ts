import pg from 'pg';
import type { Logger } from 'pino';
import { connectionConfig } from '../postgres/connection.ts';

const heartbeatMs = 250;
/** A revocation must be obeyed within 1 s: what was not confirmed as current for this long is not served from memory. */
const currentForMs = 900;
const reconnectMs = 200;

type ChangeHandler = (key: string) => void;

/**
 * Tells this process which rows of the control database changed, whoever changed them (`NOTIFY` by triggers).
 *
 * The rule for those who keep rows in memory: serve them only while `current` is true. It is true while the connection
 * has proved to be alive within the last moment; a silent network counts as down. After every reconnection everything
 * kept is dropped before `current` becomes true again, because what happened meanwhile is not known.
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

  /** Whether rows kept in memory are known to be current. */
  get current(): boolean {
    return performance.now() - this.#provenAt < currentForMs;
  }

  /** Calls `drop` with the key of each changed row of a table, or with `*` when all of them must be dropped. */
  subscribe(table: string, drop: ChangeHandler): void {
    this.#handlers.set(table, drop);
  }

  /** Resolves when the feed is listening. @throws when the control database cannot be reached; `start` does not retry */
  async start(): Promise<void> {
    await this.#connect();
    this.#schedule(heartbeatMs);
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
    client.on('error', () => this.#lost(client));
    client.on('end', () => this.#lost(client));
    client.on('notification', message => this.#announce(message.payload ?? '*:*'));
    try {
      await client.connect();
      await client.query('listen control_changes');
      if (this.#stopped) throw new Error('the change feed was stopped meanwhile');
    } catch (error) {
      client.end().catch(() => {});
      throw error;
    }
    this.#client = client;
    this.#announce('*:*');
    this.#provenAt = performance.now();
  }

  #announce(payload: string): void {
    const separator = payload.indexOf(':');
    const [table, key] = [payload.slice(0, separator), payload.slice(separator + 1)];
    if (table === '*') for (const drop of this.#handlers.values()) drop('*');
    else this.#handlers.get(table)?.(key);
  }

  #lost(client: pg.Client): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    this.#provenAt = Number.NEGATIVE_INFINITY;
    if (!this.#stopped)
      this.#log.warn({ event: 'change_feed_lost' }, 'the change feed is down: nothing is served from memory');
  }

  #schedule(afterMs: number): void {
    this.#timer = setTimeout(() => {
      this.#beat().then(
        next => {
          if (!this.#stopped) this.#schedule(next);
        },
        () => {},
      );
    }, afterMs).unref();
  }

  /** Proves that the connection is alive, or makes a new one. Resolves to the time until the next beat, in ms. */
  async #beat(): Promise<number> {
    const client = this.#client;
    try {
      if (client) {
        const askedAt = performance.now();
        await client.query('select 1');
        if (this.#client === client) this.#provenAt = askedAt;
      } else {
        await this.#connect();
        this.#log.info({ event: 'change_feed_restored' }, 'the change feed is back');
      }
      return heartbeatMs;
    } catch {
      if (client) {
        this.#lost(client);
        client.end().catch(() => {});
      }
      return reconnectMs;
    }
  }
}
