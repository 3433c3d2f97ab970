import pg from 'pg';
import { PoolError, sqlState } from './database-error.ts';
import { retryRefused, retryRefusedOf } from './retry-refused.ts';
import { ScramClient } from './scram-client.ts';

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
  /** Maximum pause inside a transaction, which holds locks meanwhile (`idle_in_transaction_session_timeout`). */
  readonly idleInTransactionMs?: number;
  /**
   * After this time without a byte from the server during a query, the connection counts as dead. Above `statementMs`.
   */
  readonly silenceMs?: number;
  /** A pool closes a connection that has been idle for this long. */
  readonly idleMs?: number;
  /** The server ends a session that has been idle for this long (`idle_session_timeout`). Above `idleMs`. */
  readonly idleSessionMs?: number;
}

const requestStatementMs = 8_000; // a request is answered within 10 s

/** The time limits of each kind of connection. The kind is also its name in `pg_stat_activity`: `backoffice-<kind>`. */
export const timeLimits = {
  /**
   * Requests, to a tenant database. `ACQUIRE_TIMEOUT_MS` limits the time to connect. The session limit is for a process
   * that vanished without closing its connections, which may hold locks: the pool closes idle connections long before.
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
  /** `ChangeFeed`. Gives up early and retries, because caches serve nothing while it is down. */
  'change-feed': { connectMs: 2_000 },
  /** Commands of an operator. Their statements (`create database`, for example) may take as long as they need. */
  operator: { connectMs: 5_000 },
  /** Migrations. While one waits for a lock on a table, every later query of that table waits behind it. */
  migrations: { connectMs: 5_000, lockMs: 5_000, statementMs: 5 * 60_000 },
  /** Moves of tenants. A statement waits briefly for a lock, because requests of the tenant may wait meanwhile. */
  move: { connectMs: 5_000, lockMs: 2_000, idleInTransactionMs: 60_000 },
  /** `requireOwnSession` and `findDatabase`. A pooler without a free backend lets a query wait. */
  probe: { connectMs: 5_000, queryMs: 5_000 },
  /** Checks inside a tenant database. */
  doctor: { connectMs: 5_000, statementMs: 30_000 },
  /** The connection that marks this process as a user of the embedded server. */
  embedded: { connectMs: 5_000 },
} as const satisfies Record<string, TimeLimits>;

type ConnectionKind = keyof typeof timeLimits;
export type SessionSettings = Readonly<Record<string, string | number>>;

/** JIT compilation costs more than it saves: the planner overestimates queries of the system catalogs. */
export const catalogQuerySettings: SessionSettings = { jit: 'off' };

/**
 * The configuration of a `pg.Client` or a `pg.Pool`.
 * @param settings server settings of the session, by name
 * @param processId the name of the connection ends with it, so that other processes can find it
 */
export function connectionConfig(
  url: string,
  kind: ConnectionKind,
  settings: SessionSettings = {},
  processId?: string,
): pg.ClientConfig {
  const limits: TimeLimits = timeLimits[kind];
  const { idleSessionMs } = limits;
  return {
    connectionString: withSession(
      url,
      idleSessionMs ? { ...settings, idle_session_timeout: idleSessionMs } : settings,
      processId && `backoffice-${kind} ${processId}`,
    ),
    application_name: `backoffice-${kind}`,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    connectionTimeoutMillis: limits.connectMs,
    statement_timeout: limits.statementMs,
    query_timeout: limits.queryMs,
    lock_timeout: limits.lockMs,
    idle_in_transaction_session_timeout: limits.idleInTransactionMs,
  };
}

/**
 * Adds to a URL the settings of the session, in `options`, and the name of the connection in `pg_stat_activity`. Beside
 * the URL they might have no effect: `pg` prefers those in the URL.
 */
function withSession(address: string, settings: SessionSettings, name: string | undefined): string {
  const flags = Object.entries(settings).map(([setting, value]) => `-c ${setting}=${value}`);
  if (flags.length === 0 && name === undefined) return address;
  const url = new URL(address);
  if (name !== undefined) url.searchParams.set('application_name', name);
  if (flags.length > 0)
    url.searchParams.set('options', [url.searchParams.get('options') ?? '', ...flags].join(' ').trim());
  return url.href;
}

/** For so long a command tries to connect to a server that has no connection left. */
const maxRefusedMs = 10_000;

/**
 * SQL after each login: a machine that vanishes, or its network, holds a connection and its locks for 20 s at most, and
 * a statement whose client is gone is cancelled. As a statement, because a pooler drops what the startup packet says.
 */
export const sessionStatement = `
  select set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
         set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '20s', false),
         set_config('client_connection_check_interval', '10s', false)`;

/**
 * Runs `sessionStatement` on a connection that has just logged in. A pooler answers a login by
 * itself, and a statement only when it has a connection to the server; so both have the same
 * time limit.
 * @throws when nobody answers in that time: the connection is of no use, and must be ended
 */
async function prepareSession(client: pg.ClientBase, { connectMs }: TimeLimits): Promise<void> {
  const query = { text: sessionStatement, query_timeout: connectMs };
  await client.query(query);
}

/** Returns what prepares each connection of a `pg.Pool`: its option `onConnect`. */
export function onPoolConnect(kind: ConnectionKind): (client: pg.ClientBase) => Promise<void> {
  return client => prepareSession(client, timeLimits[kind]);
}

/**
 * Runs `work` on one connection outside of any pool, and closes the connection.
 * @param pipeline true to send each query without waiting for the result of the one before it
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
  const client = await retryRefused(() => connect(config, kind), { maxMs: maxRefusedMs });
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

async function connect(config: ConstructorParameters<typeof ScramClient>[0], kind: ConnectionKind): Promise<pg.Client> {
  const client = newClient(config);
  client.on('error', () => {}); // the running query rejects
  try {
    await client.connect();
    await prepareSession(client, timeLimits[kind]);
    return client;
  } catch (error) {
    await client.end().catch(() => {});
    throw error;
  }
}

/** @throws {PoolError} when a file that the URL names, such as `sslrootcert`, cannot be read */
function newClient(config: ConstructorParameters<typeof ScramClient>[0]): ScramClient {
  try {
    return new ScramClient(config);
  } catch (error) {
    if (!['ENOENT', 'EACCES', 'EISDIR'].includes(sqlState(error) ?? '')) throw error;
    throw new PoolError('TLS_FILE', 'a file that the URL names cannot be read');
  }
}

/** Returns a pool of up to `max` operator connections, which connects on first use. Its user ends it. */
export function operatorPool(url: string, max: number): pg.Pool {
  const pool = new pg.Pool({
    ...connectionConfig(url, 'operator'),
    max,
    Client: ScramClient,
    onConnect: onPoolConnect('operator'),
  });
  pool.on('error', () => {}); // the running query rejects
  retryRefusedOf(pool, { maxMs: maxRefusedMs });
  return pool;
}
