import { databaseNameOf } from '../../control/server-urls.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import type { Statements } from '../../postgres/statements.ts';
import { onServer, readState, restoringName } from './restoring-database.ts';

/*
 * While a restore of the control database has begun and not ended, the control database does not exist or has no
 * tenant. Nothing may create or fill it then: a restore takes the place of an empty one only.
 */

/** @throws {OperatorError} when the control database has no tenant, and a restore of it has not ended */
export async function requireNoRestore(control: Statements, controlUrl: string): Promise<void> {
  const name = restoringName(databaseNameOf(controlUrl));
  const [state] = await control.execute<{ restoring: boolean }[]>(
    `select not exists (select from tenants) and exists (select from pg_database where datname = ?) as restoring`,
    [name],
  );
  if (state?.restoring) throw unfinishedRestore(name);
}

/**
 * As `requireNoRestore`, for a control database that does not exist or has no schema. A server that cannot be used is
 * no restore: the caller reports it.
 */
export async function requireNoRestoreOnServer(controlUrl: string): Promise<void> {
  const name = restoringName(databaseNameOf(controlUrl));
  const isRestoring = async (): Promise<boolean> => {
    const found = await onServer(controlUrl, server =>
      server.query('select from pg_database where datname = $1', [name]),
    );
    return found.rowCount === 1 && !(await readState(controlUrl))?.tenants;
  };
  if (await isRestoring().catch(() => false)) throw unfinishedRestore(name);
}

function unfinishedRestore(name: string): OperatorError {
  return new OperatorError(
    `A restore of the control database has begun, and has not ended. To give it up, drop database ${quoteIdentifier(name)}. ` +
      'Otherwise run it again, with the same options: npx backoffice control restore',
  );
}
