import { usesAge } from '../../config/backup-format.ts';
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
  const { description, hasUnknown } = await (usesAge() ? lookForArchives(controlUrl) : lookForFiles(controlUrl));
  if (!hasUnknown) return;
  throw new OperatorError(
    `The control database has no tenant, and ${description} has archives of another one. If that one was lost, ` +
      'restore it: bin/backoffice control restore (with --all if the databases of tenants are lost too). ' +
      'A new installation needs a BACKUP_TARGET of its own',
  );
}

/** What a target has of control databases that this one is not. */
interface Found {
  readonly description: string;
  readonly hasUnknown: boolean;
}

async function lookForArchives(controlUrl: string): Promise<Found> {
  const { openBackupTarget } = await import('../backup/target/open-target.ts');
  const { listControlArchives } = await import('./control-archives.ts');
  const target = await openBackupTarget();
  const archives = await listControlArchives(target);
  const own = await withConnection(controlUrl, async client => {
    const { rows } = await client.query<{ id: string }>('select id from installation');
    return rows[0]?.id;
  }).catch(error => {
    if (['3D000', '42P01'].includes(sqlState(error) ?? '')) return undefined;
    throw error;
  });

  return {
    description: target.description,
    hasUnknown: archives.some(({ installation }) => installation !== own),
  };
}

async function lookForFiles(controlUrl: string): Promise<Found> {
  const target = openTarget(readConfig().backup);
  const names = await Array.fromAsync(target.list('control/'), ({ name }) => name);

  return { description: target.description, hasUnknown: (await unknownOf(controlUrl, names)).length > 0 };
}

/** @returns the archives that the control database does not know: all of them while it has no ledger */
async function unknownOf(controlUrl: string, names: readonly string[]): Promise<readonly string[]> {
  return withConnection(controlUrl, client => unknownControlArchives(client, names)).catch(error => {
    if (['3D000', '42P01'].includes(sqlState(error) ?? '')) return names;
    throw error;
  });
}
