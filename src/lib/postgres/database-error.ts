import { errorFact } from '../narrow.ts';
import { type Problem, problem } from '../problems.ts';

/** A connection could not be acquired, for a reason that did not come from PostgreSQL. */
export class PoolError extends Error {
  override name = 'PoolError';
  readonly code:
    | 'POOL_TIMEOUT'
    | 'POOL_CLOSED'
    | 'POOL_FENCED'
    | 'NO_BEAT'
    | 'ETIMEDOUT'
    | 'TLS_FILE'
    | 'NO_PASSWORD'
    | 'URL_OPTIONS'
    | 'TRIGGERS_OFF';

  constructor(code: PoolError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/** The code of a notification for which the queue of the server has no room. */
const notifyFullState = 'NOTIFY_FULL';

/**
 * Returns the SQLSTATE (PostgreSQL, appendix A) of an error that came from a database, or the
 * code that the driver, Node or this project gave it; undefined for any other error. The only
 * place that reads such a code.
 */
export function sqlState(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;

  const code = errorFact(error, 'code');
  // A pooler has one code for all refusals of the server.
  if (code === '08P01' && /^(database ".*" does not exist|no such database)/.test(error.message)) {
    return '3D000';
  }
  if (code === '08P01' && /^(SASL|password) authentication failed/.test(error.message)) {
    return '28P01';
  }
  // PostgreSQL has one code for this and for a value that is too long for an index.
  if (code === '54000' && errorFact(error, 'routine') === 'PreCommit_Notify') {
    return notifyFullState;
  }
  if (typeof code === 'string') return isOfUnixSocket(error) ? `SOCKET_${code}` : code;
  // These failures of `pg` carry no code.
  if (/timeout exceeded when trying to connect/.test(error.message)) return 'POOL_TIMEOUT';
  if (/^timeout expired$/.test(error.message)) return 'ETIMEDOUT';
  if (
    /Connection terminated|Query read timeout|Client has encountered a connection error/.test(
      error.message,
    )
  ) {
    return '08006';
  }
  if (/^The server does not support SSL connections$/.test(error.message)) return 'TLS_REFUSED';

  return undefined;
}

/**
 * True for an error of a connection by a Unix socket. Node gives it the codes of files: the file
 * of the socket is not there while the server is stopped (`ENOENT`).
 */
function isOfUnixSocket(error: Error): boolean {
  return (
    errorFact(error, 'syscall') === 'connect' &&
    errorFact(error, 'address') !== undefined &&
    errorFact(error, 'port') === undefined
  );
}

/**
 * True when the connection was lost, or its prepared statements are no longer valid: another
 * connection may succeed.
 */
export function isConnectionLost(error: unknown): boolean {
  return /^(08...|57P01|0A000|26000|ECONNRESET|EPIPE)$/.test(sqlState(error) ?? '');
}

/** True when a server refused a connection because it has no more. */
export function isServerFull(error: unknown): boolean {
  return sqlState(error) === '53300';
}

/** True when a server has no room for a notification: the transaction was rolled back. */
export function isNotifyFull(error: unknown): boolean {
  return sqlState(error) === notifyFullState;
}

/**
 * Returns the fingerprint of the present key when the control database refused a secret that
 * another key had sealed; undefined for every other error.
 */
export function otherKeyDetail(error: unknown): string | undefined {
  const detail = errorFact(error, 'detail');
  return sqlState(error) === otherKeyState && typeof detail === 'string' ? detail : undefined;
}

/**
 * Matches a whole SQLSTATE or code; a dot stands for any character, so `08...` is a class of
 * SQLSTATEs.
 */
const codes = (...patterns: string[]): RegExp => new RegExp(`^(${patterns.join('|')})$`);
const network = [
  'SOCKET_.*',
  'ECONN.*',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
];
/**
 * Codes because of which TLS failed or the certificate of the server is not trusted: of Node,
 * except for the first two.
 */
const tls = [
  'TLS_FILE',
  'TLS_REFUSED',
  'CERT_.*',
  'ERR_TLS_.*',
  '.*SELF_SIGNED_CERT.*',
  'UNABLE_TO_(VERIFY|GET)_.*',
];
/**
 * Lost connections, refused logins, sessions that the server ended in a transaction, deadlocks,
 * exhausted resources, what other sessions use, cancelled statements, failures of the server.
 */
const serverStates =
  '08... 0A000 26000 25006 25P03 25P04 28... 3D000 40001 40P01 42501 53... 55P03 55000 55006 57... 58... XX00.'.split(
    ' ',
  );

/** The SQLSTATE of `check_table_size` in tenant databases: the table may not grow. */
const limitReachedState = 'SB001';

/**
 * The SQLSTATE of `require_present_key` in the control database: another key than the present
 * one sealed a secret.
 */
const otherKeyState = 'SB002';

/** The SQLSTATE of the triggers `append_only`: rows of a log are not changed. */
const appendOnlyState = 'SB003';

/** The SQLSTATE of `refuse_without_request` in tenant databases: a change has no request. */
const actorMissingState = 'SB004';

/**
 * The failures of a database for which a client does not get a 500. The first match decides.
 */
const problemByCode = [
  [codes('23505'), 'duplicate'],
  [codes('23503'), 'in_use'],
  [codes(limitReachedState), 'limit_reached'],
  [codes('TENANT_VERSION'), 'migration_pending'],
  [codes('53300', 'POOL_TIMEOUT'), 'overloaded'],
  [
    codes(
      'TENANT_IDENTITY',
      'TENANT_REPLICATED',
      'POOL_CLOSED',
      'POOL_FENCED',
      'NO_BEAT',
      'NO_PASSWORD',
      'TRIGGERS_OFF',
      'DEADLINE',
      'MASTER_KEY',
      otherKeyState,
      appendOnlyState,
      actorMissingState,
      notifyFullState,
      ...serverStates,
      ...network,
      ...tls,
    ),
    'unavailable',
  ],
] as const;

/**
 * Returns the problem that a client sees when a database fails; undefined when the error is an
 * unexpected one.
 */
export function databaseProblem(error: unknown): Problem | undefined {
  const state = sqlState(error);
  const [, code] = problemByCode.find(([codes]) => state !== undefined && codes.test(state)) ?? [];
  return code && problem(code, { cause: error });
}
