import { ConfigError } from './config.ts';
import { describeError } from './log.ts';
import { sqlState } from './postgres/database-error.ts';

/** Something an operator can mend: shown as one line, without a stack. `usage` errors exit with 2. */
export class OperatorError extends Error {
  override name = 'OperatorError';
  readonly usage: boolean;

  constructor(message: string, { usage = false, cause }: { usage?: boolean; cause?: unknown } = {}) {
    super(message, { cause });
    this.usage = usage;
  }
}

const reasons: Record<string, string> = {
  ECONNREFUSED: 'nothing listens at that address',
  ENOTFOUND: 'there is no such host',
  EAI_AGAIN: 'the host name cannot be resolved',
  ETIMEDOUT: 'there is no answer',
  POOL_TIMEOUT: 'there is no answer',
  '28P01': 'the password is wrong',
  '28000': 'the login is refused',
  '3D000': 'there is no such database',
  '42501': 'the login lacks a right that is needed',
  '53300': 'it has no connection left',
  '57P03': 'it is starting up',
};

/** One line for a person at a terminal: what is wrong and what to do; never a password or a statement. */
export function explain(error: unknown): string {
  if (error instanceof ConfigError) return `The configuration is not right: ${error.message}.`;
  if (error instanceof OperatorError) return `${error.message}.`.replace(/\.\.$/, '.');
  const code = sqlState(error);
  if (code && reasons[code]) return `The control database (DATABASE_URL) cannot be used: ${reasons[code]}.`;
  return `An error that should not happen: ${JSON.stringify(describeError(error), null, 2)}`;
}
