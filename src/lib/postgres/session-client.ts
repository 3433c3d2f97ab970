import pg from 'pg';
import type { PostgresUrl } from '../config/postgres-url.ts';
import { connectionParametersOf } from '../seams/connection-parameters.ts';
import { RolledBackError } from './commit-outcome.ts';
import { PoolError, sqlState } from './database-error.ts';
import { quoteLiteral } from './quote.ts';
import { ScramClient } from './scram-client.ts';
import { serverTls } from './server-tls.ts';

/** Settings of a session, by their names in PostgreSQL. */
export type SessionSettings = Readonly<Record<string, string | number>>;

/**
 * The settings on which the code relies in every session, whatever a server, a role or a
 * database has set. A kind of connection overrides it, or adds to it. Some settings are left to
 * the server: those of plans, the abbreviations of time zones, which no text of ours has, and
 * `respected`.
 */
const reliedOn: SessionSettings = {
  // Texts and numbers, in and out.
  client_encoding: 'UTF8',
  datestyle: 'ISO, MDY',
  intervalstyle: 'postgres',
  timezone: 'UTC',
  bytea_output: 'hex',
  extra_float_digits: 1,
  lc_monetary: 'C',
  lc_numeric: 'C',
  lc_time: 'C',
  array_nulls: 'on',
  quote_all_identifiers: 'off',
  standard_conforming_strings: 'on',
  transform_null_equals: 'off',
  xmlbinary: 'base64',
  xmloption: 'content',

  // The places in which names are looked up and objects are made.
  search_path: 'public',
  default_tablespace: '',
  temp_tablespaces: '',
  default_table_access_method: 'heap',
  check_function_bodies: 'on',
  createrole_self_grant: '',
  restrict_nonsystem_relation_kind: '',
  session_replication_role: 'origin', // else no trigger runs: no audit entry, no event, no reference
  password_encryption: 'scram-sha-256',
  row_security: 'on',
  'plpgsql.extra_errors': 'none',

  // Limits, which the limits of a kind of connection override (`timeLimits`). The first one
  // would leave out rows that a search has found.
  gin_fuzzy_search_limit: 0,
  statement_timeout: 0,
  lock_timeout: 0,
  transaction_timeout: 0,
  idle_in_transaction_session_timeout: 0,
  idle_session_timeout: 0,
  exit_on_error: 'off',
  client_min_messages: 'notice',
  log_parameter_max_length_on_error: 0, // values may be secrets, such as password hashes

  // Isolation.
  default_transaction_isolation: 'read committed',
  default_transaction_deferrable: 'off',

  // If a machine or its network vanishes, its connections and their locks stay for 20 s at
  // most, and a statement whose client is gone is cancelled.
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: '20s',
  client_connection_check_interval: '10s',
};

/**
 * The settings that have the value of the server, the role or the database, whatever a pooler or
 * its last client has set in the session: a pooler may give each session the value that it has
 * seen in another one (PgBouncer 1.26 does). By `default_transaction_read_only` an operator
 * locks a server, which `requireUsableServer` reports.
 */
const respected = ['default_transaction_read_only'];

/**
 * A commit that was acknowledged is on the disk of the server at least; a stronger setting of
 * the server stays. It is reset first, as those in `respected` are.
 */
const synchronousCommit = `coalesce(nullif(pg_catalog.set_config('synchronous_commit', null, false), 'off'), 'local')`;

/**
 * Settings that need a privilege. A setting that has the wanted value already is left alone;
 * otherwise a session without the privilege fails.
 */
const privileged = ['session_replication_role'].map(quoteLiteral);

/**
 * Returns the statement that sets a session, and returns no row. Its names have their schema,
 * because `search_path` is not set yet. Leaves out a setting of a later version of PostgreSQL,
 * which the server does not know; the settings of this project have no value before they are
 * set.
 */
function sessionStatement(settings: SessionSettings = {}): string {
  const all = { ...reliedOn, ...settings };
  const names = Object.keys(all).map(quoteLiteral);
  const values = Object.values(all).map(value => quoteLiteral(String(value)));

  for (const name of respected.filter(each => !(each in all))) {
    names.push(quoteLiteral(name));
    values.push('null');
  }

  if (!('synchronous_commit' in all)) {
    names.push(`'synchronous_commit'`);
    values.push(synchronousCommit);
  }

  return `
    select from rows from (pg_catalog.unnest(array[${names}]), pg_catalog.unnest(array[${values}])) as setting(name, value)
     where case when name in (${privileged}) and pg_catalog.current_setting(name) = value then value
                when pg_catalog.starts_with(name, 'app.') or pg_catalog.current_setting(name, true) is not null
                then pg_catalog.set_config(name, value, false) end is null`;
}

const insufficientPrivilege = '42501';

/** SQLSTATEs of a login whose `options` the server, or a pooler, does not take. */
const refusedOptions = new Set(['08P01', '22023', '42601', '42704']);

/** The configuration of a `SessionClient`. */
export interface SessionConfig extends pg.ClientConfig {
  readonly server: PostgresUrl;
  readonly session: SessionSettings;
}

/**
 * A connection of this project: to the server that its URL names, whatever variables (`PGHOST`,
 * `PGOPTIONS`, `PGSSLMODE` …) or password files the shell has, and with the settings of the
 * session on which the code relies. The session is set by one statement after the login: a
 * pooler in session mode drops or refuses what the startup packet says.
 */
export class SessionClient extends ScramClient {
  readonly #statement: pg.QueryConfig & { query_timeout: number | undefined };
  readonly #hasOptions: boolean;

  // A method of the class would need the overloads of `pg.Client.query` once more.
  static {
    SessionClient.prototype.query = requireCommits(pg.Client.prototype.query);
  }

  /**
   * @throws {PoolError} when a file that the URL names, such as `sslrootcert`, cannot be read
   */
  constructor(config: SessionConfig) {
    const { server, session, ...rest } = config;
    const { host, port = 5432, user, password, database, parameters } = server;
    super({
      ...rest,
      host,
      port,
      user,
      password,
      database,
      ssl: serverTls(server),
      sslnegotiation: parameters.sslnegotiation ?? 'postgres',
    } as pg.ClientConfig);

    // A pooler answers a login by itself, and a statement only when it has a connection to the
    // server: so both have the same time limit.
    this.#statement = {
      text: sessionStatement(session),
      query_timeout: rest.connectionTimeoutMillis,
    };
    this.#hasOptions = parameters.options !== undefined;
    this.on('error', () => {}); // the running query rejects
    ignoreEnvironment(this, { password: password ?? missingPassword, options: parameters.options });
  }

  /** Connects, and sets the session. */
  override connect(): Promise<this>;
  override connect(callback: (error: Error) => void): void;
  override connect(callback?: (error: Error) => void): Promise<this> | undefined {
    const connecting = this.#open();
    if (!callback) return connecting;

    const report = callback as (error: Error | null) => void;
    connecting.then(
      () => report(null),
      error => report(error),
    );
    return undefined;
  }

  /**
   * Connects without the session settings, for a client that sends further queries together
   * with `setSession`.
   */
  async logIn(): Promise<void> {
    await super.connect().catch(cause => {
      this.leave();
      if (!this.#hasOptions || !refusedOptions.has(sqlState(cause) ?? '')) throw cause;
      throw Object.assign(
        new PoolError('URL_OPTIONS', 'the server refuses the options in the URL'),
        { cause },
      );
    });
  }

  /**
   * Sets the session.
   * @throws {PoolError} `TRIGGERS_OFF` when no trigger would run in it
   */
  async setSession(): Promise<void> {
    await this.query(this.#statement).catch(cause => {
      if (sqlState(cause) !== insufficientPrivilege) throw cause;
      throw Object.assign(
        new PoolError('TRIGGERS_OFF', 'session_replication_role lets no trigger run'),
        { cause },
      );
    });
  }

  async #open(): Promise<this> {
    await this.logIn();
    try {
      await this.setSession();
    } catch (error) {
      this.end().catch(() => {});
      throw error;
    }
    return this;
  }
}

/**
 * Returns `query` of `pg`, whose promise rejects when PostgreSQL has turned a commit into a
 * rollback. `pg` reports that in the tag of the command only: code that has caught the error
 * of a statement inside the transaction would be told that all is stored. Every connection of
 * this project is a `SessionClient`, those of MikroORM too, and commits by the text `commit`.
 */
function requireCommits(query: pg.Client['query']): pg.Client['query'] {
  return function send(this: pg.Client, ...parameters: unknown[]): unknown {
    const result: unknown = Reflect.apply(query, this, parameters);
    if (parameters[0] !== 'commit' || !(result instanceof Promise)) return result;

    return result.then((committed: pg.QueryResult) => {
      if (committed.command !== 'COMMIT') throw new RolledBackError();

      return committed;
    });
  } as pg.Client['query'];
}

/**
 * Fills the values that a configuration leaves empty: `pg` would take them from variables of
 * the environment, and from `~/.pgpass`.
 */
function ignoreEnvironment(
  client: pg.Client,
  own: { password: string | typeof missingPassword; options: string | undefined },
): void {
  Object.assign(client, { password: own.password });
  Object.assign(connectionParametersOf(client), {
    password: own.password,
    options: own.options,
    replication: undefined,
  });
}

/** Called when a server asks for a password that the URL does not have. */
async function missingPassword(): Promise<never> {
  throw new PoolError('NO_PASSWORD', 'the server asks for a password, and the URL has none');
}
