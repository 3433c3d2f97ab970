import { ConfigError } from '../config/config-error.ts';
import { otherKeyDetail, sqlState } from '../postgres/database-error.ts';
import { describeError } from './describe-error.ts';
import { connectFailure, isPrivilegeMissing, postgresCause } from './postgres-causes.ts';

/**
 * An error that an operator can resolve: shown as one line, without a stack. The message says
 * what is wrong and what to do next, and never holds a password. `usage` errors exit with 2,
 * all others with 1.
 */
export class OperatorError extends Error {
  override name = 'OperatorError';
  readonly usage: boolean;
  /** The running processes that block the command, for `--json`. */
  readonly blockedBy: readonly object[] | undefined;

  constructor(
    message: string,
    {
      usage = false,
      cause,
      blockedBy,
    }: { usage?: boolean; cause?: unknown; blockedBy?: readonly object[] } = {},
  ) {
    super(message, { cause });
    this.usage = usage;
    this.blockedBy = blockedBy;
  }
}

/**
 * The text for a command under which the master key was changed: a command seals with the key
 * that was the present one when it began.
 */
const otherKeyText =
  'The master key was changed while the command ran, which could not store a secret any more. ' +
  'Run it again.';

/**
 * Explains an error in one line for the operator: what is wrong and what to do. Never contains
 * a password or a statement. Only an unexpected error takes several lines: its details help to
 * find the defect.
 */
export function explain(error: unknown): string {
  if (error instanceof ConfigError) return `Correct the configuration: ${error.message}.`;
  if (error instanceof OperatorError) return asSentence(error.message);
  if (otherKeyDetail(error) !== undefined) return otherKeyText;

  const known = postgresCause(error);
  const details = JSON.stringify(describeError(error), null, 2);
  if (!known) return `Unexpected error. Report it with these details: ${details}`;
  const reason = connectFailure(error);
  if (isPrivilegeMissing(error)) {
    return `PostgreSQL has refused a statement, as ${reason}. ${known.step}.`;
  }
  if (reason) return `PostgreSQL cannot be used: ${reason}. ${known.step}.`;
  return (
    `PostgreSQL refused a statement (${sqlState(error)}): ${known.cause}. ${known.step}.\n` +
    `If that does not help, report it with these details: ${details}`
  );
}

/** An error as `--json` prints it. A code is stable; message and hint are for people. */
interface ErrorDocument {
  code: 'usage' | 'configuration' | 'failed' | 'blocked' | 'database_unusable' | 'unexpected';
  message: string;
  /** The next step of the operator; null when the message says it. */
  hint: string | null;
  /**
   * Details of an unexpected error, and of a statement that was refused, for the developers.
   */
  details?: object | undefined;
  /** The running processes that block the command. */
  blockedBy?: readonly object[];
}

/** Describes an error as `explain` does, in parts for programs. */
export function errorDocument(error: unknown): ErrorDocument {
  const code = errorCode(error);
  if (code === 'unexpected') {
    return {
      code,
      message: 'Unexpected error.',
      hint: 'Report it with the details.',
      details: describeError(error),
    };
  }

  const [text = ''] = explain(error).split('\n', 1);
  const [, message = text, hint = null] = /^(.*?[.?!]) (?=[A-Z])(.*)$/.exec(text) ?? [];
  const blockedBy = error instanceof OperatorError ? error.blockedBy : undefined;
  const isRefused = postgresCause(error) !== undefined && !connectFailure(error);

  return {
    code,
    message,
    hint,
    ...(blockedBy && { blockedBy }),
    ...(isRefused && { details: describeError(error) }),
  };
}

function errorCode(error: unknown): ErrorDocument['code'] {
  if (error instanceof ConfigError) return 'configuration';
  if (error instanceof OperatorError && error.usage) return 'usage';
  if (error instanceof OperatorError && error.blockedBy) return 'blocked';
  if (connectFailure(error instanceof OperatorError ? error.cause : error)) {
    return 'database_unusable';
  }
  if (postgresCause(error)) return 'failed';
  return error instanceof OperatorError || otherKeyDetail(error) !== undefined
    ? 'failed'
    : 'unexpected';
}

/** Adds a full stop, except after a command or a statement, so that it can be pasted. */
function asSentence(message: string): string {
  return /[.?!;]$|: (bin\/backoffice|psql) [^.:]*$/.test(message) ? message : `${message}.`;
}
