import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { requireOwnSessionOf } from '../../lib/postgres/session-probe.ts';
import { type ReadOnlyLock, readOnlyLockSql, readOnlyText } from './read-only-lock.ts';

/** The oldest version of PostgreSQL that is supported: 160003 is PostgreSQL 16.3. */
export const minServerVersion = 160_000;

/** The use of a server. */
export interface ServerUse {
  /** The beginning of sentences: `The control database`, `The server second`. */
  readonly subject: string;
  /** The URL of the connection, for a second one. */
  readonly url: string;
  /** True when databases and roles are created on it. */
  readonly isOperator: boolean;
  /**
   * True when the database of the connection is the control database, and has to hold its
   * tables.
   */
  readonly isControl: boolean;
}

interface ServerState {
  version: number;
  isStandby: boolean;
  /** The lock under which the session is; null if it may write. */
  lock: ReadOnlyLock | null;
  login: string;
  database: string;
  encoding: string;
  mayCreateDatabases: boolean;
  mayCreateRoles: boolean;
  mayCreateTables: boolean;
}

const readState = `
  select current_setting('server_version_num')::int as version, pg_is_in_recovery() as "isStandby",
         ${readOnlyLockSql} as lock,
         current_user as login, current_database() as database,
         pg_encoding_to_char((select encoding from pg_database where datname = current_database())) as encoding,
         rolsuper or rolcreatedb as "mayCreateDatabases", rolsuper or rolcreaterole as "mayCreateRoles",
         has_schema_privilege('public', 'create') as "mayCreateTables"
    from pg_roles where rolname = current_user`;

/**
 * Checks that a server can be used, before anything is written to it: its version, that it
 * takes writes, that the login has the rights, that the database takes every letter, and that a
 * connection keeps its session. `npm start`, commands, `control migrate` and `server add` all
 * make this one check.
 * @throws {OperatorError} with what to do
 * @throws {SharedSessionError} behind a pooler that shares sessions
 */
export async function requireUsableServer(client: pg.Client, use: ServerUse): Promise<void> {
  const { rows } = await client.query<ServerState>(readState);
  const fault = rows[0] && serverFault(rows[0], use);
  if (fault) throw new OperatorError(`${use.subject} cannot be used: ${fault}`);

  await requireOwnSessionOf(client, use.url);
}

/** Returns the fault of a server, and the next step; undefined when there is none. */
export function serverFault(
  state: ServerState,
  { isOperator, isControl }: Omit<ServerUse, 'url'>,
): string | undefined {
  const { version, login, database } = state;
  const [major, min] = [version, minServerVersion].map(number => Math.floor(number / 10_000));
  if (version < minServerVersion) {
    return `it is on PostgreSQL ${major}. Upgrade its server: PostgreSQL ${min} or later is required`;
  }
  if (state.isStandby) {
    return 'it is on a standby, which takes no writes. Give the address of the primary in its URL';
  }
  if (state.lock !== null) {
    const { place, remedy } = readOnlyText(state.lock, state);
    return `it is read-only, because default_transaction_read_only is on for ${place}. ${remedy}`;
  }

  const lacking = [
    state.mayCreateDatabases ? '' : 'createdb',
    state.mayCreateRoles ? '' : 'createrole',
  ].filter(Boolean);
  if (isOperator && lacking.length > 0) {
    return (
      `its login ${login} lacks ${lacking.map(each => each.toUpperCase()).join(' and ')}. ` +
      `Run as a superuser: alter role ${quote(login)} ${lacking.join(' ')};`
    );
  }
  if (!isControl) return undefined;

  if (state.encoding !== 'UTF8') {
    return (
      `database ${database} has the encoding ${state.encoding}, and UTF8 is required. Name a database that does not ` +
      'exist in its URL, and create it: bin/backoffice control migrate'
    );
  }
  if (isOperator && !state.mayCreateTables) {
    return (
      `its login ${login} may not create tables in database ${database}. ` +
      `Run as a superuser: alter database ${quote(database)} owner to ${quote(login)};`
    );
  }
  return undefined;
}
