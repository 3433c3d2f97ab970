import { timeLimits } from '../../lib/postgres/connection.ts';
import { IdleConnections } from './idle-connections.ts';
import { type Pool, TenantClient } from './tenant-client.ts';

interface ServerConnectionsOptions {
  /**
   * Called when a waiter may be served: a connection became idle or was closed, or another one
   * may be opened.
   */
  onChange: () => void;
  /** Called when opening a connection failed, before `onChange`. */
  onOpenFailed: (pool: Pool, error: unknown) => void;
}

const sweepEveryMs = 5_000;

/**
 * The connections of this process to one server: opens, closes and counts them, and holds the
 * idle ones.
 */
export class ServerConnections {
  readonly #options: ServerConnectionsOptions;
  readonly #idle = new IdleConnections(client => this.#close(client));
  readonly #connectLimiter: ConnectLimiter;
  readonly #sweep: NodeJS.Timeout;
  #open = 0;
  #closing = 0;
  #opened = 0;
  #evicted = 0;
  #empty: PromiseWithResolvers<void> | undefined;

  constructor(options: ServerConnectionsOptions) {
    this.#options = options;
    this.#connectLimiter = new ConnectLimiter(options.onChange);
    this.#sweep = setInterval(() => this.#closeIdle(), sweepEveryMs).unref();
  }

  /** Connections that the server counts: in use, idle, being opened and being closed. */
  get open(): number {
    return this.#open;
  }

  /** Connections that are being closed, and still count as open. */
  get closing(): number {
    return this.#closing;
  }

  /** The number of connections that `ConnectLimiter` allows to open now. */
  get connectRoom(): number {
    return this.#connectLimiter.room;
  }

  /** Counts since the start of the process. */
  get counts(): { readonly opened: number; readonly evicted: number } {
    return { opened: this.#opened, evicted: this.#evicted };
  }

  /** Takes an idle connection of a pool; undefined when there is none. */
  takeIdle(pool: Pool): TenantClient | undefined {
    return this.#idle.take(pool);
  }

  /**
   * Keeps an unused connection as idle. Closes it if its pool has ended or it is not reusable.
   */
  keep(client: TenantClient): void {
    if (client.pool.ended || !client.isReusable) this.#close(client);
    else this.#idle.add(client);
  }

  /**
   * Opens a connection, which is idle afterwards. Counts it before the first `await`; never
   * rejects.
   */
  async openFor(pool: Pool): Promise<void> {
    this.#open++;
    pool.opening++;
    this.#opened++;
    const endConnecting = this.#connectLimiter.begin();
    let client: TenantClient | undefined;

    try {
      // may throw: reads the certificate files that the URL names
      const opened = new TenantClient(pool, since => this.#abortIdleSince(since));
      client = opened;
      opened.once('end', () => this.#onEnd(opened));
      await opened.open();
      pool.opening--;
      this.keep(opened);
    } catch (error) {
      pool.opening--;
      this.#options.onOpenFailed(pool, error);
      if (client) this.#close(client);
      else this.#open--;
    }

    endConnecting();
    this.#options.onChange();
  }

  /**
   * Closes the idle connection that is least likely to be needed.
   * @returns false when no connection is idle
   */
  evict(): boolean {
    const client = this.#idle.takeLeastUsed();
    if (!client) return false;
    this.#evicted++;
    this.#close(client);
    return true;
  }

  /**
   * Closes idle connections, the least likely to be needed first, until at most `max` are open
   * and not closing.
   */
  closeAbove(max: number): void {
    while (this.#open - this.#closing > max && this.evict());
  }

  /** Closes the idle connections of a pool. */
  closeIdleOf(pool: Pool): void {
    for (let client = this.#idle.take(pool); client; client = this.#idle.take(pool)) {
      this.#close(client);
    }
  }

  /** Resolves when no connection is open. Every pool must have ended. */
  async drain(): Promise<void> {
    clearInterval(this.#sweep);
    if (this.#open === 0) return;
    this.#empty ??= Promise.withResolvers();
    await this.#empty.promise;
  }

  #close(client: TenantClient): void {
    if (client.closing || client.ended) return;
    this.#closing++;
    client.pool.closing++;
    client.close();
  }

  /**
   * Called when the server has closed a connection: only from now on can another one be opened
   * in its place.
   */
  #onEnd(client: TenantClient): void {
    const { pool } = client;
    if (client.closing) {
      this.#closing--;
      pool.closing--;
    }
    this.#open--;
    this.#idle.remove(client);
    if (this.#open === 0) this.#empty?.resolve();
    this.#options.onChange();
  }

  /**
   * Breaks off the connections of all tenants that were idle before a connection was used that
   * is silent now: nothing has come from the server on them since, and each would let one more
   * request wait as long. Those that have been used meanwhile were answered, and stay.
   */
  #abortIdleSince(moment: number): void {
    for (const client of this.#idle.takeIdleSince(moment)) client.abortAsSilent();
  }

  #closeIdle(): void {
    const clients = this.#idle.takeIdleSince(performance.now() - timeLimits.api.idleMs);
    for (const client of clients) this.#close(client);
  }
}

const maxConnecting = 8;
/**
 * Opening a connection takes 5 ms, or 20 ms on a busy server. One that does not finish must not
 * block the others.
 */
const maxCountedMs = 250;

/**
 * Limits how many connections are opened at a time. Opening a connection evicts a useful one,
 * and a busy server opens many no faster than a few.
 */
class ConnectLimiter {
  readonly #onRoom: () => void;
  #count = 0;

  /** @param onRoom called when an opening is no longer counted although it has not finished */
  constructor(onRoom: () => void) {
    this.#onRoom = onRoom;
  }

  /** The number of further connections that may be opened now. */
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
