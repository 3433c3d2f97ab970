import { readConfig } from '../../config/config.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { unknownControlArchives } from '../archives/target-owner.ts';
import { openTarget } from '../archives/targets/open-target.ts';
import { readState } from './restoring-database.ts';

/**
 * Refuses to create or migrate a control database without a tenant while `BACKUP_TARGET` has archives of one that it
 * does not know: that one was probably lost, and an empty one would take its place.
 * @throws {OperatorError} that names the restore, or says why the target cannot be read
 */
export async function requireNoLostControl(controlUrl: string): Promise<void> {
  const { backup } = readConfig();
  if (!backup.target || (await readState(controlUrl))?.tenants) return;
  const target = openTarget(backup);
  const names = await Array.fromAsync(target.list('control/'), ({ name }) => name);
  if ((await unknownOf(controlUrl, names)).length === 0) return;
  throw new OperatorError(
    `The control database has no tenant, and ${target.description} has archives of another one. If that one was lost, ` +
      'restore it: npx backoffice control restore (with --all if the databases of tenants are lost too). ' +
      'A new installation needs a BACKUP_TARGET of its own',
  );
}

/** @returns the archives that the control database does not know: all of them while it has no ledger */
async function unknownOf(controlUrl: string, names: readonly string[]): Promise<readonly string[]> {
  return withConnection(controlUrl, client => unknownControlArchives(client, names)).catch(error => {
    if (['3D000', '42P01'].includes(sqlState(error) ?? '')) return names;
    throw error;
  });
}
