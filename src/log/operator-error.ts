import { ConfigError } from '../config/config-error.ts';
import { isServerFull, otherKeyDetail, sqlState } from '../postgres/database-error.ts';
import { describeError } from './describe-error.ts';

/**
 * An error that an operator can resolve: shown as one line, without a stack. The message says what is wrong and what to
 * do next, and never holds a password. `usage` errors exit with 2, all others with 1.
 */
export class OperatorError extends Error {
  override name = 'OperatorError';
  readonly usage: boolean;
  /** The running processes that block the command, for `--json`. */
  readonly blockedBy: readonly object[] | undefined;

  constructor(
    message: string,
    { usage = false, cause, blockedBy }: { usage?: boolean; cause?: unknown; blockedBy?: readonly object[] } = {},
  ) {
    super(message, { cause });
    this.usage = usage;
    this.blockedBy = blockedBy;
  }
}

const unknownAuthority = 'its certificate is not signed by an authority in the file that sslrootcert names in its URL';

/** Why a PostgreSQL server cannot be used, by SQLSTATE, or by the code of the driver or of Node. */
const connectFailures: Record<string, string> = {
  ECONNREFUSED: 'nothing listens at its address',
  ENOTFOUND: 'its host does not exist',
  EAI_AGAIN: 'its host name cannot be resolved at the moment',
  ETIMEDOUT: 'it does not respond',
  ECONNRESET: 'it closes the connection',
  EHOSTUNREACH: 'no network leads to its host',
  ENETUNREACH: 'no network leads to its host',
  '08006': 'it does not respond, or closes the connection',
  POOL_TIMEOUT: 'it does not respond',
  '25006': 'it is read-only, as a standby is, or after a change of default_transaction_read_only',
  '28P01': 'the password is wrong',
  NO_PASSWORD: 'it asks for a password, and its URL has none',
  '28000': 'it refuses the login',
  URL_OPTIONS: 'it refuses the options in its URL',
  '3D000': 'the database does not exist',
  '42501': 'the login lacks a privilege',
  '53100': 'its disk is full',
  '53300': 'it has no connection left',
  NOT_DELIVERED: 'its notifications do not arrive, as through a pooler in transaction mode',
  SHARED_SESSION:
    'its connections change sessions, as through a pooler in transaction mode; connect directly, or use session mode',
  '57P01': 'it has ended the connection, because it stops or because this command did not respond for 5 s',
  TLS_FILE: 'its URL names a file of certificates or keys, such as sslrootcert, that cannot be read',
  TLS_REFUSED: 'it does not support TLS, which its URL requires',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another host name than the URL has',
  DEPTH_ZERO_SELF_SIGNED_CERT: unknownAuthority,
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  '57P03': 'it is starting up; try again in a moment',
};

/** How a server keeps connections for commands. They have tried for ten seconds before an operator reads this. */
export const serverFullRemedy =
  'End a session, or wait until one ends. For the next time, keep connections for operators: set reserved_connections ' +
  'on the server (PostgreSQL 16 or later), restart it, and grant pg_use_reserved_connections to the login of commands';

/** A command seals with the master key that was the present one when it began. */
const otherKeyText =
  'The master key was changed while the command ran, which could not store a secret any more. Run it again.';

/** Returns why a PostgreSQL server could not be used, in words; undefined for every other error. */
export function connectFailure(error: unknown): string | undefined {
  return connectFailures[sqlState(error) ?? ''];
}

/**
 * Explains an error in one line for the operator: what is wrong and what to do. Never contains a password or a
 * statement. Only an unexpected error takes several lines: its details help to find the defect.
 */
export function explain(error: unknown): string {
  if (error instanceof ConfigError) return `Correct the configuration: ${error.message}.`;
  if (error instanceof OperatorError) return asSentence(error.message);
  if (otherKeyDetail(error) !== undefined) return otherKeyText;

  const reason = connectFailure(error);
  if (isServerFull(error)) return `PostgreSQL cannot be used: ${reason}. ${serverFullRemedy}.`;
  if (reason) return `PostgreSQL cannot be used: ${reason}. Check DATABASE_URL and the servers of the tenants.`;
  return `Unexpected error. Report it with these details: ${JSON.stringify(describeError(error), null, 2)}`;
}

/** What `--json` prints of an error. A code is stable; message and hint are for people. */
interface ErrorDocument {
  code: 'usage' | 'configuration' | 'failed' | 'blocked' | 'database_unusable' | 'unexpected';
  message: string;
  /** What to do next; null when the message says it. */
  hint: string | null;
  /** Details of an unexpected error, for the developers. */
  details?: object | undefined;
  /** The running processes that block the command. */
  blockedBy?: readonly object[];
}

/** Describes an error as `explain` does, in parts for programs. */
export function errorDocument(error: unknown): ErrorDocument {
  const code = errorCode(error);
  if (code === 'unexpected') {
    return { code, message: 'Unexpected error.', hint: 'Report it with the details.', details: describeError(error) };
  }
  const text = explain(error);
  const [, message = text, hint = null] = /^(.*?[.?!]) (?=[A-Z])(.*)$/.exec(text) ?? [];
  const blockedBy = error instanceof OperatorError ? error.blockedBy : undefined;
  return { code, message, hint, ...(blockedBy && { blockedBy }) };
}

function errorCode(error: unknown): ErrorDocument['code'] {
  if (error instanceof ConfigError) return 'configuration';
  if (error instanceof OperatorError && error.usage) return 'usage';
  if (error instanceof OperatorError && error.blockedBy) return 'blocked';
  if (connectFailure(error instanceof OperatorError ? error.cause : error)) return 'database_unusable';
  return error instanceof OperatorError || otherKeyDetail(error) !== undefined ? 'failed' : 'unexpected';
}

/** Adds a full stop, except after a command or a statement, so that it can be pasted. */
function asSentence(message: string): string {
  return /[.?!;]$|: (bin\/backoffice|psql) [^.:]*$/.test(message) ? message : `${message}.`;
}
