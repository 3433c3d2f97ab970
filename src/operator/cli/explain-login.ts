import { OperatorError } from '../../log/operator-error.ts';
import { sqlState } from '../../postgres/database-error.ts';

const insufficientPrivilege = '42501';

/**
 * Returns an error that says what to do when a command has failed because `DATABASE_URL` has the login of the service,
 * which lacks the rights of an operator; every other error as it is.
 */
export async function explainLogin(error: unknown): Promise<unknown> {
  const cause = error instanceof OperatorError ? error.cause : error;
  if (sqlState(cause) !== insufficientPrivilege) return error;
  const { readConfig } = await import('../../config/config.ts');
  const { databaseUrl } = readConfig();
  if (databaseUrl === undefined) return error;
  const { isServiceLogin } = await import('../schema/service-login.ts');
  if (!isServiceLogin(databaseUrl)) return error;
  return new OperatorError(
    'DATABASE_URL has the login of the service: commands need the login of the operator, with which control migrate ran',
    { cause },
  );
}
