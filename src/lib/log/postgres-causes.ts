import { asError, errorFact } from '../narrow.ts';
import { sqlState } from '../postgres/database-error.ts';

/** The meaning of a code, and the next step of the operator. */
export interface ErrorCause {
  /** SQLSTATEs (PostgreSQL, appendix A), or codes of the driver, of Node or of this project. */
  readonly codes: readonly string[];
  /**
   * The cause: of a server, a sentence that begins with `its` or `it`; of a statement, a
   * clause.
   */
  readonly cause: string;
  /** An imperative clause, without a full stop. */
  readonly step: string;
}

/**
 * The remedy for a full server: the settings by which it keeps connections for commands. A
 * command has tried for ten seconds before an operator reads this text.
 */
const serverFullRemedy =
  'End a session, or wait until one ends. If the message names the login or the database, raise its connection limit ' +
  '(alter role, alter database). For the next time, keep connections for operators: set reserved_connections ' +
  'on the server (PostgreSQL 16 or later), restart it, and grant pg_use_reserved_connections to the login of commands';

const untrusted =
  'its certificate is not signed by an authority in the file that sslrootcert names in its URL';
const unreachable =
  'Let the network through to the host and port of its URL (firewall, network policy)';

/** The causes because of which a PostgreSQL server cannot be used. */
export const serverCauses: readonly ErrorCause[] = [
  {
    codes: ['ECONNREFUSED'],
    cause: 'nothing listens at its address',
    step: 'Start the server, or correct the host and the port in its URL',
  },
  {
    codes: [
      'SOCKET_ENOENT',
      'SOCKET_ECONNREFUSED',
      'SOCKET_ENOTDIR',
      'SOCKET_ELOOP',
      'SOCKET_EPROTOTYPE',
    ],
    cause: 'nothing listens at its Unix socket',
    step: 'Start the server, or correct the folder of the socket (host) and the port in its URL',
  },
  {
    codes: ['SOCKET_EACCES', 'SOCKET_EPERM'],
    cause: 'this login may not use its Unix socket',
    step: 'Let this login of the machine enter the folder of the socket and write to it, or use a host and port in its URL',
  },
  {
    codes: ['SOCKET_EINVAL', 'SOCKET_ENAMETOOLONG'],
    cause: 'the path of its Unix socket is too long',
    step: 'Let the server have its socket in a folder with a shorter path (unix_socket_directories), or use a host and port in its URL',
  },
  {
    codes: ['SOCKET_EAGAIN'],
    cause: 'its queue of new connections is full',
    step: 'Look whether the server is running and not paused, and try again',
  },
  { codes: ['ENOTFOUND'], cause: 'its host does not exist', step: 'Correct the host in its URL' },
  {
    codes: ['EAI_AGAIN'],
    cause: 'its host name cannot be resolved at the moment',
    step: 'Check the name service of this machine, and try again',
  },
  {
    codes: ['ETIMEDOUT', '08006', 'POOL_TIMEOUT'],
    cause: 'it does not respond',
    step: 'Start the server, or let the network through to the host and port of its URL',
  },
  {
    codes: ['ECONNRESET', 'EPIPE'],
    cause: 'it closes the connection',
    step: 'Look into the log of the server, and of a pooler or proxy before it',
  },
  {
    codes: ['EHOSTUNREACH', 'ENETUNREACH'],
    cause: 'no network leads to its host',
    step: unreachable,
  },
  {
    codes: ['25006'],
    cause: 'it is read-only, as a standby is, or after a change of default_transaction_read_only',
    step: 'Let its URL lead to the primary, or end the lock where it is: bin/backoffice doctor names the place',
  },
  {
    codes: ['28P01'],
    cause: 'the password is wrong, or its time has ended (valid until)',
    step: 'Correct the password in its URL, or let a superuser extend its time (alter role, valid until)',
  },
  {
    codes: ['NO_PASSWORD'],
    cause: 'it asks for a password, and its URL has none',
    step: 'Write the password into its URL',
  },
  {
    codes: ['28000'],
    cause: 'it refuses the login',
    step:
      'Correct the login in its URL, let a superuser give it LOGIN (alter role), or let pg_hba.conf admit it from ' +
      'this machine',
  },
  {
    codes: ['URL_OPTIONS'],
    cause: 'it refuses the options in its URL',
    step: 'Take the options out of its URL',
  },
  {
    codes: ['TRIGGERS_OFF'],
    cause: 'no trigger would run in its sessions: session_replication_role is on replica',
    step:
      'As a superuser, reset session_replication_role where it is set: alter database, alter role, or alter system ' +
      'and a reload',
  },
  {
    codes: ['3D000'],
    cause: 'the database does not exist',
    step: 'Correct the database in its URL, or create it; a tenant gets its data back by bin/backoffice restore <slug> --lost',
  },
  {
    codes: ['42501'],
    cause: 'the login lacks a privilege',
    step:
      'Let the owner of what the message names, or a superuser, grant it to that login; ' +
      'bin/backoffice doctor names the grants that the login of commands needs',
  },
  {
    codes: ['53100'],
    cause: 'its disk is full',
    step: 'Free room on its disk, or enlarge it',
  },
  { codes: ['53300'], cause: 'it has no connection left', step: serverFullRemedy },
  {
    codes: ['NOTIFY_FULL'],
    cause:
      'its queue of notifications is full, because a session of any of its databases listens and stays in a transaction',
    step: 'End that transaction: bin/backoffice doctor names the session',
  },
  {
    codes: ['NOT_DELIVERED'],
    cause: 'its notifications do not arrive, as through a pooler in transaction mode',
    step: 'Let DATABASE_URL lead to the server itself, or to a pooler in session mode',
  },
  {
    codes: ['SHARED_SESSION'],
    cause:
      'its connections change sessions, as through a pooler in transaction mode; connect directly, or use session mode',
    step: 'Let its URL lead to the server itself, or to a pooler in session mode',
  },
  {
    codes: ['57P01'],
    cause:
      'it has ended the connection, because it stops or because this command did not respond for 5 s',
    step: 'Wait until it has started again, and try again',
  },
  {
    codes: ['TLS_FILE'],
    cause: 'its URL names a file of certificates or keys, such as sslrootcert, that cannot be read',
    step: 'Correct the path in its URL, and let this login read the file',
  },
  {
    codes: ['TLS_REFUSED'],
    cause: 'it does not support TLS, which its URL requires',
    step: 'Set ssl to on at the server, with a certificate; only on this machine, take sslmode out of its URL',
  },
  {
    codes: ['CERT_HAS_EXPIRED'],
    cause: 'its certificate has expired',
    step: 'Renew the certificate of the server',
  },
  {
    codes: ['CERT_NOT_YET_VALID'],
    cause: 'its certificate is not valid yet',
    step: 'Correct the clock of this machine, or the certificate of the server',
  },
  {
    codes: ['ERR_TLS_CERT_ALTNAME_INVALID'],
    cause: 'its certificate is for another host name than the URL has',
    step: 'Write the name of its certificate into its URL',
  },
  {
    codes: [
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'SELF_SIGNED_CERT_IN_CHAIN',
      'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    ],
    cause: untrusted,
    step: 'Write sslrootcert=/path/to/ca.crt, with the file of the authority, into its URL',
  },
  {
    codes: ['57P03'],
    cause: 'it is starting up; try again in a moment',
    step: 'Wait until it has started',
  },
  {
    codes: ['08P01'],
    cause:
      'it is behind a pooler that refuses the login, as PgBouncer does for 15 s after a login that failed',
    step:
      'Try again in 15 s, and set server_login_retry = 1 in the file of PgBouncer; if it goes on, look into the log ' +
      'of the pooler',
  },
];

/** The causes because of which a server that can be used refuses a statement of a command. */
export const statementCauses: readonly ErrorCause[] = [
  {
    codes: ['55006'],
    cause:
      'something uses the database: a session, a prepared transaction or the reader of a replication slot',
    step:
      'End what the message names: a session or a reader by pg_terminate_backend, a prepared transaction by ' +
      'rollback prepared',
  },
  {
    codes: ['55P03', '25P03', '25P04'],
    cause: 'another transaction holds a lock, or this one waited for too long',
    step: 'End the transaction that pg_stat_activity shows, or wait until it ends',
  },
  {
    codes: ['40001', '40P01'],
    cause: 'two transactions were in the way of each other',
    step: 'Try again',
  },
  {
    codes: ['57014'],
    cause: 'the server cancelled the statement, at a time limit or for an administrator',
    step: 'Set no statement_timeout for the login, and try again',
  },
  {
    codes: ['23505', '42P04', '42710'],
    cause:
      'there is such a row, database or role already, as after a change by hand or by another run',
    step: 'Run bin/backoffice doctor, which names what is there, and remove it',
  },
  {
    codes: ['23503', '2BP01'],
    cause: 'something else refers to it',
    step: 'Remove what the message names, and try again',
  },
  {
    codes: ['42P01', '42703', '42883', '3F000'],
    cause: 'a table, column, function or schema of this build is not there',
    step: 'Run bin/backoffice status, then migrate what is out of date, and doctor for other differences',
  },
  {
    codes: ['SB003'],
    cause:
      'it would change or remove rows of activities or audit_log, which only grow: a trigger of the schema refuses that',
    step:
      'Leave the rows as they are; a migration fills a new column of theirs by backfill (migrations/README.md), and ' +
      'bin/backoffice retention apply removes old rows',
  },
  {
    codes: ['SB004'],
    cause:
      'it is a change by the login of a tenant that names no request, as when the begin of its transaction was cancelled',
    step: 'Send the request again, because nothing was stored; with psql, connect as the owner of the tables',
  },
  {
    codes: ['53200', '53400'],
    cause: 'the server has no memory left, or is at a limit of its configuration',
    step: 'Raise what its log names, such as max_locks_per_transaction, and restart it',
  },
  {
    codes: ['58030', '58P01', '58P02'],
    cause: 'the server cannot read or write its files',
    step: 'Look into the log of the server, and at its disk',
  },
  {
    codes: ['XX000'],
    cause: 'the server has an internal error',
    step: 'Look into the log of the server',
  },
  {
    codes: ['XX001', 'XX002'],
    cause: 'data of the server is damaged',
    step: 'Stop the server, copy its files, and restore from a backup: bin/backoffice restore',
  },
];

const serverCausesByCode = byCode(serverCauses);
const causesByCode = byCode([...serverCauses, ...statementCauses]);

function byCode(causes: readonly ErrorCause[]): ReadonlyMap<string, ErrorCause> {
  return new Map(causes.flatMap(cause => cause.codes.map(code => [code, cause] as const)));
}

const insufficientPrivilege = '42501';

/**
 * Returns the reason why a PostgreSQL server could not be used, in words; undefined for every
 * other error.
 */
export function connectFailure(error: unknown): string | undefined {
  const code = sqlState(error) ?? '';
  const cause = serverCausesByCode.get(code)?.cause;
  if (named.has(code)) return `${cause}: ${messageOf(error)}`;
  if (code === 'TLS_FILE') return asError(error).message; // names the file

  return cause;
}

/**
 * The codes whose message says which of several causes it is, and names objects, logins and
 * attributes, but no value: a missing privilege, a refused login, a limit of connections.
 */
const named = new Set([insufficientPrivilege, '28000', '53300']);

/** Returns the sentence of PostgreSQL. */
function messageOf(error: unknown): string {
  const { message } = asError(error);
  const detail = errorFact(error, 'detail');

  return typeof detail === 'string' && detail
    ? `${message} (${detail.replace(/\.$/, '')})`
    : message;
}

/**
 * Returns the meaning of an error of PostgreSQL, and the next step; undefined for an error with
 * another code.
 */
export function postgresCause(error: unknown): ErrorCause | undefined {
  return causesByCode.get(sqlState(error) ?? '');
}

/** True for a statement that the login may not run: the server itself can be used. */
export function isPrivilegeMissing(error: unknown): boolean {
  return sqlState(error) === insufficientPrivilege;
}
