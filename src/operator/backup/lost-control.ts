import type { ConfigAccess, ControlAddress } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { compareNewestFirst } from './archive-list.ts';
import type { StoredArchive } from './restore/find-archive.ts';
import { parseArchiveName } from './target/archive-name.ts';
import { openBackupTarget } from './target/open-target.ts';
import type { Target } from './target/target.ts';

/**
 * Refuses a control database without a tenant while `BACKUP_TARGET` has archives of another
 * control database: that one was probably lost, and an empty one would take its place.
 * @throws {OperatorError} that names the restore, or says why the target cannot be read
 */
export async function requireNoLostControl({
  controlUrl,
  config,
}: ControlAddress & ConfigAccess): Promise<void> {
  if (!config.backup.target) return;
  const present = await readPresent(controlUrl);
  if (present && present.tenants > 0) return;

  const target = await openBackupTarget({ config });
  const archives = await listControlArchives(target);
  if (archives.every(({ installation }) => installation === present?.installation)) return;

  throw new OperatorError(
    `The control database has no tenant, and ${target.description} has archives of another ` +
      'one. If that one was lost, restore it: bin/backoffice control restore (with --all if the ' +
      'databases of tenants are lost too). A new installation needs a BACKUP_TARGET of its own',
  );
}

/**
 * Returns the archives of control databases in a target, of all installations, the newest
 * first.
 */
export async function listControlArchives(target: Target): Promise<ControlArchive[]> {
  const found: ControlArchive[] = [];
  for await (const object of target.list('')) {
    const archive = parseArchiveName(object.name);
    if (archive?.tenant === null) found.push({ ...object, ...archive, row: undefined });
  }

  return found.sort(compareNewestFirst);
}

/** An archive of a control database, which is lost, and with it the row. */
export interface ControlArchive extends StoredArchive {
  /** The id of the installation. */
  readonly installation: string;
}

interface PresentControl {
  readonly installation: string;
  readonly tenants: number;
}

/** @returns undefined when the control database does not exist, or has no schema yet */
async function readPresent(controlUrl: string): Promise<PresentControl | undefined> {
  return withConnection(controlUrl, async client => {
    const { rows } = await client.query<PresentControl>(
      'select id as installation, (select count(*)::int from tenants) as tenants from installation',
    );
    return rows[0];
  }).catch(error => {
    if (['3D000', '42P01'].includes(sqlState(error) ?? '')) return undefined;
    throw error;
  });
}
