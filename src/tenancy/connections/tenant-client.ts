import type { Socket } from 'node:net';
import { PoolError } from '../../lib/postgres/database-error.ts';
import { DescribedStatements, PreparedQuery } from '../../lib/postgres/prepared-query.ts';
import { SessionClient } from '../../lib/postgres/session-client.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { streamOf } from '../../lib/seams/stream-of.ts';
import type { PoolState } from './pool-state.ts';
import { verifyTenant } from './tenant-identity.ts';

const maxCloseMs = 1_000;
/**
 * SQLSTATEs after which a connection is given up: the server closes it, its prepared statements
 * are not valid any more, or the server is read-only, so that the name of the primary may lead
 * to another server by now.
 */
const fatalStates = /^(57P|25006|25P0[34]|08|0A000|26000)/;

/** The connections of one tenant. */
export type Pool = PoolState<TenantClient>;

/** One connection to a tenant's database. It is in use from `beginUse` until `release`. */
export class TenantClient extends SessionClient {
  readonly pool: Pool;
  /** Begin and end of the opening, by `performance.now()`; 0 while it has not ended. */
  openingAt = 0;
  openedAt = 0;
  /** Time of the last release, by `performance.now()`. */
  idleSince = 0;
  /** Statements that the server has executed. The commit of the last one may still follow. */
  executed = 0;
  /**
   * True when the server was a standby when the connection was opened: it may lack commits of
   * the primary.
   */
  isStandby = false;
  /** False when the transaction ids in the database were not compared with the counter. */
  #isEntered = true;
  /** True once a connection that serves one use only has been used. */
  #isSpent = false;
  /** True once `close` has been called. */
  closing = false;
  /** True once the server has closed its side. */
  ended = false;
  /** True after a fatal error, although the socket may still be open. */
  #isFailing = false;
  /** Called when the use ends; undefined while the connection is not in use. */
  #onRelease: (() => void) | undefined;
  /** Begin of the use, by `performance.now()`. */
  #usedSince = 0;
  #forgetDeadlines: (() => void)[] = [];
  readonly #described = new DescribedStatements();
  readonly #onSilence: (since: number) => void;

  /**
   * @param onSilence called when the server has sent nothing for too long during a use, with
   *   the begin of the use
   */
  constructor(pool: Pool, onSilence: (since: number) => void) {
    super(pool.options);
    this.pool = pool;
    this.#onSilence = onSilence;
    // the running query rejects, and `end` follows in any case
    this.on('error', () => (this.#isFailing = true));
    this.connection.on('errorMessage', ({ code }: { code?: string }) => {
      if (fatalStates.test(code ?? '')) this.#isFailing = true;
    });
    this.connection.on('commandComplete', () => this.executed++);
    this.once('end', () => this.#onEnd());
  }

  /** True while queries can be sent. */
  get isAlive(): boolean {
    return !this.ended && !this.#isFailing;
  }

  /** All bytes that the server has sent. */
  get bytesReceived(): number {
    return this.#stream.bytesRead;
  }

  /**
   * True when the next request may use the connection: it is alive, and not inside a
   * transaction. A connection to a server that took no writes, so that the ids in the database
   * were not compared, is used once: the server may take writes by then, and the session does
   * not (`verifyTenant`).
   */
  get isReusable(): boolean {
    return this.isAlive && !this.#isSpent && this.getTransactionStatus() === 'I';
  }

  /**
   * Connects, and verifies before any query of a request that this is the tenant's database.
   * @throws {PoolError} `ETIMEDOUT` after `openMs`
   */
  async open(): Promise<void> {
    const { expected, silenceMs, openMs } = this.pool.options;

    this.openingAt = performance.now();
    // The error is created when the timer fires. An error created here would capture this
    // stack, and with it retain the connection whose end caused this one to be opened, which
    // retains the one before it, and so on.
    const giveUp = () =>
      this.abort(new PoolError('ETIMEDOUT', 'the server did not answer in time'));
    const timer = setTimeout(giveUp, openMs);

    try {
      await this.logIn();
      const [, { isStandby, isEntered }] = await Promise.all([
        this.setSession(),
        verifyTenant(this, expected, this.pool.cluster),
      ]);
      this.isStandby = isStandby;
      this.#isEntered = isEntered;
    } finally {
      clearTimeout(timer);
    }

    this.openedAt = performance.now();
    const stream = this.#stream;
    // A listener, because a callback of `setTimeout` is called once only, and an idle
    // connection is silent too.
    stream.setTimeout(silenceMs).on('timeout', () => {
      if (!this.#onRelease) return;

      this.#onSilence(this.#usedSince);
      this.abortAsSilent();
    });
  }

  /**
   * Breaks the connection off, because its server is silent. The error has not the code of a
   * lost connection, which would cause a retry that takes as long again.
   */
  abortAsSilent(): void {
    this.abort(new PoolError('ETIMEDOUT', 'the server sent nothing for too long'));
  }

  /** Returns the rows of a statement. */
  async rows<Row extends object = RowValues>(statement: Statement<Row>): Promise<Row[]> {
    if (statement.name === '') return (await this.query<Row>(statement)).rows;
    try {
      return await new Promise((resolve, reject) => {
        const settle = (error: Error | null, rows: Row[]) =>
          error ? reject(error) : resolve(rows);
        this.query(new PreparedQuery(statement, this.#described, settle));
      });
    } catch (error) {
      // The stack of the caller is of use, that of the socket is not.
      if (error instanceof Error) Error.captureStackTrace(error);
      throw error;
    }
  }

  /**
   * Sends several queries in one packet. When it resolves or rejects, none of the queries is
   * still running.
   */
  async sendTogether<Queries extends readonly Promise<unknown>[] | []>(send: () => Queries) {
    this.#stream.cork();
    let queries: Queries;
    try {
      queries = send();
    } finally {
      this.#stream.uncork();
    }
    await Promise.allSettled(queries);
    return Promise.all(queries);
  }

  /** Marks the connection as in use. `release` ends the use and calls `onRelease`. */
  beginUse(onRelease: () => void): this {
    this.#onRelease = onRelease;
    this.#usedSince = performance.now();
    this.#isSpent = !this.#isEntered;
    return this;
  }

  /**
   * Destroys the connection if it is still in use when the deadline of one of its requests
   * passes.
   */
  endAt(deadline: Deadline): void {
    const forget = deadline.onPass(() => {
      this.abort(new PoolError('ETIMEDOUT', 'the request reached its deadline'));
    });
    this.#forgetDeadlines.push(forget);
  }

  /** Ends the use. A second call for the same use does nothing. */
  release(): void {
    const onRelease = this.#onRelease;
    this.#onRelease = undefined;
    for (let forget = this.#forgetDeadlines.pop(); forget; forget = this.#forgetDeadlines.pop()) {
      forget();
    }
    if (!onRelease) return;
    this.pool.onUsed(performance.now() - this.#usedSince);
    onRelease();
  }

  /**
   * Asks the server to close the connection. `end` is emitted when it has, after `maxCloseMs`
   * at the latest.
   */
  close(): void {
    this.closing = true;
    const timer = setTimeout(() => this.#stream.destroy(), maxCloseMs).unref();
    this.once('end', () => clearTimeout(timer));
    this.end().catch(() => {});
  }

  get #stream(): Socket {
    return streamOf(this);
  }

  /**
   * Releases a connection that died in use. A single query rejects, and its caller releases the
   * connection at once. But Kysely releases the connection of a transaction only after COMMIT
   * or ROLLBACK, and on a dead connection both fail: without this, the connection would count
   * against the budget for as long as the process lives.
   */
  #onEnd(): void {
    this.ended = true;
    setImmediate(() => this.release());
  }
}
