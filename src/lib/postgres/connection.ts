import pg from 'pg';
import { parsePostgresUrl } from '../config/postgres-url.ts';
import { retryRefused, retryRefusedOf } from './retry-refused.ts';
import { SessionClient, type SessionConfig, type SessionSettings } from './session-client.ts';

/** The time limits of a connection, in milliseconds. A limit that is absent does not apply. */
interface TimeLimits {
  /** Maximum time to connect and log in. */
  readonly connectMs?: number;
  /** Maximum run of one statement; PostgreSQL cancels it (`statement_timeout`). */
  readonly statementMs?: number;
  /** Maximum wait of this process for the result of a query; the query goes on. */
  readonly queryMs?: number;
  /** Maximum wait of a statement for one lock (`lock_timeout`). */
  readonly lockMs?: number;
  /**
   * Maximum pause inside a transaction, which holds locks meanwhile
   * (`idle_in_transaction_session_timeout`).
   */
  readonly idleInTransactionMs?: number;
  /**
   * After this time without a byte from the server during a query, the connection counts as
   * dead. Above `statementMs`.
   */
  readonly silenceMs?: number;
  /** A pool closes a connection that has been idle for this long. */
  readonly idleMs?: number;
  /**
   * The server ends a session that has been idle for this long (`idle_session_timeout`). Above
   * `idleMs`.
   */
  readonly idleSessionMs?: number;
}

const requestStatementMs = 8_000; // a request is answered within 10 s

/**
 * The time limits of each kind of connection. The kind is also its name in `pg_stat_activity`:
 * `backoffice-<kind>`.
 */
export const timeLimits = {
  /**
   * Requests, to a tenant database. `ACQUIRE_TIMEOUT_MS` limits the time to connect. The
   * session limit is for a process that vanished without closing its connections, which may
   * hold locks: the pool closes idle connections long before.
   */
  api: {
    statementMs: requestStatementMs,
    idleInTransactionMs: requestStatementMs,
    silenceMs: requestStatementMs + 1_000,
    idleMs: 30_000,
    idleSessionMs: 60_000,
  },
  /** Requests, to the control database. */
  control: {
    connectMs: 3_000,
    statementMs: requestStatementMs,
    idleInTransactionMs: 30_000,
    silenceMs: requestStatementMs + 1_000,
    idleMs: 30_000,
  },
  /**
   * `ChangeFeed`. Gives up early and retries, because caches serve nothing while it is down.
   */
  'change-feed': { connectMs: 2_000 },
  /**
   * Commands of an operator. Their statements (`create database`, for example) may take as long
   * as they need.
   */
  operator: { connectMs: 5_000 },
  /**
   * Migrations. While one waits for a lock on a table, every later query of that table waits
   * behind it.
   */
  migrations: { connectMs: 5_000, lockMs: 5_000, statementMs: 5 * 60_000 },
  /**
   * Moves of tenants. A statement waits briefly for a lock, because requests of the tenant may
   * wait meanwhile.
   */
  move: { connectMs: 5_000, lockMs: 2_000, idleInTransactionMs: 60_000 },
  /**
   * `requireOwnSession` and `findDatabase`. A pooler without a free backend lets a query wait.
   */
  probe: { connectMs: 5_000, queryMs: 5_000 },
  /**
   * Checks inside a tenant database. A database whose tables are locked is reported, and does
   * not hold up the others for long.
   */
  doctor: { connectMs: 5_000, lockMs: 3_000, statementMs: 30_000 },
  /** Look-ups of the values that completion offers, for which the shell waits. */
  completion: { connectMs: 1_000, queryMs: 1_000 },
  /** The connection that marks this process as a user of the embedded server. */
  embedded: { connectMs: 5_000 },
} as const satisfies Record<string, TimeLimits>;

type ConnectionKind = keyof typeof timeLimits;

/**
 * The settings for queries of the system catalogs, which the planner overestimates: JIT
 * compilation costs more than it saves.
 */
export const catalogQuerySettings: SessionSettings = { jit: 'off' };

/** The configuration of a connection, and of a pool of connections. */
interface ConnectionConfig extends SessionConfig {
  readonly Client: new () => pg.ClientBase;
}

/**
 * The configuration of a `SessionClient`, or of a pool of them.
 * @param settings settings of the session, beside those on which every session relies
 * @param processId the name of the connection ends with it, so that other processes can find it
 * @throws {PostgresUrlError} when the URL cannot be used
 */
export function connectionConfig(
  url: string,
  kind: ConnectionKind,
  settings: SessionSettings = {},
  processId?: string,
): ConnectionConfig {
  const limits: TimeLimits = timeLimits[kind];

  return {
    Client: SessionClient as unknown as new () => pg.ClientBase,
    server: parsePostgresUrl(url),
    session: {
      statement_timeout: limits.statementMs ?? 0,
      lock_timeout: limits.lockMs ?? 0,
      idle_in_transaction_session_timeout: limits.idleInTransactionMs ?? 0,
      idle_session_timeout: limits.idleSessionMs ?? 0,
      ...settings,
    },
    application_name: processId ? `backoffice-${kind} ${processId}` : `backoffice-${kind}`,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    connectionTimeoutMillis: limits.connectMs,
    query_timeout: limits.queryMs,
  };
}

/** The time for which a command tries to connect to a server that has no connection left. */
export const maxRefusedMs = 10_000;

/**
 * Runs `work` on one connection outside of any pool, and closes the connection.
 * @param pipeline true to send each query without waiting for the result of the one before it;
 *   not with a `kind` whose limits have `queryMs`: one slow query would end the connection
 */
export async function withConnection<T>(
  url: string,
  work: (client: pg.Client) => Promise<T>,
  {
    kind = 'operator',
    settings = {},
    pipeline = false,
  }: { kind?: ConnectionKind; settings?: SessionSettings; pipeline?: boolean } = {},
): Promise<T> {
  const config = { ...connectionConfig(url, kind, settings), pipeline };
  const client = await retryRefused(() => connect(config), { maxMs: maxRefusedMs });
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

async function connect(config: SessionConfig): Promise<pg.Client> {
  const client = new SessionClient(config);
  try {
    return await client.connect();
  } catch (error) {
    await client.end().catch(() => {});
    throw error;
  }
}

/**
 * Returns a pool of up to `max` operator connections, which connects on first use. Its user
 * ends it.
 */
export function operatorPool(url: string, max: number): pg.Pool {
  const pool = new pg.Pool({ ...connectionConfig(url, 'operator'), max });
  pool.on('error', () => {}); // the running query rejects
  retryRefusedOf(pool, { maxMs: maxRefusedMs });
  return pool;
}
