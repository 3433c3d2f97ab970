import { controlHead, controlVersion } from '../control/database.ts';
import type { Installation } from '../installation.ts';
import { connectFailure, OperatorError } from '../operator-error.ts';
import { sqlState } from '../postgres/database-error.ts';
import { createControlDatabase, migrateControl } from './migrations/migrate-control.ts';

/**
 * Brings an embedded control database to the version of this build. Only the operator migrates a configured one.
 * @throws {OperatorError} when a configured one is at another version, or cannot be used
 */
export async function requireControlHead({ control, controlUrl, embedded }: Installation): Promise<void> {
  if (embedded) {
    await createControlDatabase(controlUrl);
    await migrateControl(controlUrl);
  }
  const [version, head] = await Promise.all([controlVersion(control).catch(explainFailure), controlHead()]);
  if (version === head) return;
  const state = version === undefined ? 'has no schema yet' : `is at version ${version}, this build needs ${head}`;
  throw new OperatorError(`The control database ${state}. Migrate it: npm run control -- migrate`);
}

function explainFailure(cause: unknown): never {
  if (sqlState(cause) === '3D000')
    throw new OperatorError(
      'The control database that DATABASE_URL names does not exist. Create it: npm run control -- migrate',
      { cause },
    );
  const reason = connectFailure(cause);
  if (reason === undefined) throw cause;
  const remedy = `Correct DATABASE_URL, or start the server, and test it: psql "$DATABASE_URL" -c 'select 1'`;
  throw new OperatorError(`The control database cannot be used: ${reason}. ${remedy}`, { cause });
}
