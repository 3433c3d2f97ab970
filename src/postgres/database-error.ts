import { type Problem, problem } from '../errors.ts';

/** Why there is no connection, though the database said nothing of it. */
export class PoolError extends Error {
  override name = 'PoolError';
  readonly code: 'POOL_TIMEOUT' | 'POOL_CLOSED' | 'ETIMEDOUT';

  constructor(code: PoolError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * The SQLSTATE (PostgreSQL, appendix A), or the code of the driver or of Node, of an error that came from a database;
 * undefined for any other error.
 */
export function sqlState(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return code;
  // Two failures of `pg` carry no code.
  if (/timeout exceeded when trying to connect/.test(error.message)) return 'POOL_TIMEOUT';
  if (/Connection terminated|Query read timeout|Client has encountered a connection error/.test(error.message))
    return '08006';
  return undefined;
}

/** Whether the connection went away, or what was prepared on it is good no more: another connection may well do. */
export function isConnectionLost(error: unknown): boolean {
  return /^(08...|57P01|0A000|26000|ECONNRESET|EPIPE)$/.test(sqlState(error) ?? '');
}

/** The constraint that a change broke, by its name; undefined for other errors. */
export function brokenConstraint(error: unknown): string | undefined {
  const { constraint } = error as { constraint?: unknown };
  return typeof constraint === 'string' ? constraint : undefined;
}

/** Every failure of a database that a client is told of in another way than 500, by class of SQLSTATE or by code. */
const problemByCode: [RegExp, (cause: unknown) => Problem][] = [
  [/^23505$/, cause => problem('duplicate', { cause })],
  [/^23503$/, cause => problem('in_use', { cause })],
  [/^(TENANT_VERSION)$/, cause => problem('migration_pending', { cause })],
  [/^(53300|POOL_TIMEOUT)$/, cause => problem('overloaded', { cause })],
  [
    /^(TENANT_IDENTITY|POOL_CLOSED|08...|0A000|26000|25006|28...|3D000|40001|40P01|42501|53...|55P03|55000|57...|58...|XX00.|ECONN.*|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EPIPE)$/,
    cause => problem('unavailable', { cause }),
  ],
];

/** What a client is told of a failing database; undefined when the error is not one that can be explained. */
export function databaseProblem(error: unknown): Problem | undefined {
  const code = sqlState(error);
  return code === undefined ? undefined : problemByCode.find(([codes]) => codes.test(code))?.[1](error);
}
