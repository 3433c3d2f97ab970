import type { Socket } from 'node:net';
import pg from 'pg';
import { PoolError, sqlState } from '../postgres/database-error.ts';
import type { PoolState, TenantClientOptions } from './pool-state.ts';
import { WriteLocks } from './write-locks.ts';

/** Reached the database of another tenant, or none: its answers must not be used. */
export class TenantIdentityError extends Error {
  override name = 'TenantIdentityError';
  readonly code = 'TENANT_IDENTITY';
}

/** The schema inside the database is not the one that this build works with. */
export class TenantVersionError extends Error {
  override name = 'TenantVersionError';
  readonly code = 'TENANT_VERSION';
}

const maxCloseMs = 1_000;
// SQLSTATEs after which the server hangs up, or what was prepared on the connection is good no more.
const fatalStates = /^(57P|25P0[34]|08|0A000|26000)/;

/** One connection to a tenant's database. */
export class TenantClient extends pg.Client {
  readonly pool: PoolState<TenantClient>;
  readonly locks = new WriteLocks(
    statement => this.query(statement as never) as Promise<unknown>,
    () => this.#onRelease !== undefined,
  );
  /** When it was last given back, by `performance.now()`. */
  idleSince = 0;
  /** Whether it was asked to end. */
  closing = false;
  /** Whether the server has let go of it. */
  ended = false;
  /** Whether it is known to be on its way out, though the socket is still open. */
  #doomed = false;
  /** Ends the use of this connection; undefined while it is not in use. */
  #onRelease: (() => void) | undefined;

  constructor(pool: PoolState<TenantClient>) {
    super(pool.options);
    this.pool = pool;
    this.on('error', () => (this.#doomed = true)); // whoever uses it is told by the query; `end` follows in any case
    this.connection.on('errorMessage', ({ code }: { code?: string }) => {
      if (fatalStates.test(code ?? '')) this.#doomed = true;
    });
    this.once('end', () => this.#onEnd());
  }

  /** Whether the next one may have it: alive, and not left inside a transaction. */
  get isReusable(): boolean {
    return !this.ended && !this.#doomed && this.getTransactionStatus() === 'I';
  }

  /** Connects, and proves before anything else that this is the tenant's database. */
  async open(): Promise<void> {
    const { expected, silenceMs, openMs } = this.pool.options;
    // An error made here, and kept, would keep all whose end led to this opening: they stand in its stack.
    const giveUp = () => this.#stream.destroy(new PoolError('ETIMEDOUT', 'the server did not answer in time'));
    const timer = setTimeout(giveUp, openMs);
    try {
      await this.connect();
      await this.#verify(expected);
    } finally {
      clearTimeout(timer);
    }
    const stream = this.#stream;
    stream.setTimeout(silenceMs, () => {
      // Not the code of a cut connection: asking again would take as long again.
      if (this.#onRelease) stream.destroy(new PoolError('ETIMEDOUT', 'the server fell silent'));
    });
  }

  async #verify(expected: TenantClientOptions['expected']): Promise<void> {
    const asked = this.query<{ guid: string; version: string | null }>(
      'select guid, schema_version as version from tenant_identity',
    );
    const { rows } = await asked.catch(error => {
      const state = sqlState(error);
      if (state === '42P01') throw new TenantIdentityError('the database has no identity', { cause: error });
      if (state === '42703') throw new TenantVersionError('the database has no version', { cause: error });
      throw error;
    });
    if (rows[0]?.guid !== expected.guid) throw new TenantIdentityError('the database belongs to another tenant');
    if (rows[0].version !== expected.schemaVersion)
      throw new TenantVersionError(`the database is at ${rows[0].version}`);
  }

  /** Several queries, sent in one packet. None of them runs on when this has ended, also when one has failed. */
  async sendTogether<Queries extends readonly Promise<unknown>[] | []>(ask: () => Queries) {
    this.#stream.cork();
    let queries: Queries;
    try {
      queries = ask();
    } finally {
      this.#stream.uncork();
    }
    await Promise.allSettled(queries);
    return Promise.all(queries);
  }

  /** Begins a use of it, which `release` ends. */
  beginUse(onRelease: () => void): this {
    this.#onRelease = onRelease;
    return this;
  }

  /** Ends the use of it, once: whoever calls again has nothing to give back. */
  release(): void {
    const onRelease = this.#onRelease;
    this.#onRelease = undefined;
    this.locks.onClientRelease();
    onRelease?.();
  }

  /** Says goodbye to the server; `end` is emitted when it has let go. */
  close(): void {
    this.closing = true;
    const timer = setTimeout(() => this.#stream.destroy(), maxCloseMs).unref();
    this.once('end', () => clearTimeout(timer));
    this.end().catch(() => {});
  }

  /** Another one once TLS has begun. */
  get #stream(): Socket {
    return (this.connection as unknown as { stream: Socket }).stream;
  }

  /**
   * A query that this cuts gives the connection back by itself, at once. Kysely gives that of a transaction back after
   * COMMIT or ROLLBACK, but on a dead one both fail, and its place would be lost for as long as the process lives.
   */
  #onEnd(): void {
    this.ended = true;
    setImmediate(() => this.release());
  }
}
