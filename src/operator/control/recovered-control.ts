import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { notArchived } from '../archives/archive-control.ts';
import { createControlSchema } from '../archives/control-archive.ts';
import { isForeign } from '../archives/target-owner.ts';
import type { BackupTarget } from '../archives/targets/backup-target.ts';
import { copyTables } from '../databases/fill-tables.ts';
import { onRecoveredServer } from '../recovery/recovered-tenant.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';
import { readNewestChange } from './after-restore.ts';
import type { ControlSource } from './control-source.ts';

/**
 * Returns the state that a control database has on a recovered server. What was revoked after its newest change is
 * looked up in later archives.
 * @param url of any database of the server, with a login that may read all tables
 * @param database the name of the control database
 * @param target of the backups of the installation
 * @throws {OperatorError} when the server has no such control database, or that of another installation
 */
export async function recoveredControl(url: string, database: string, target: BackupTarget): Promise<ControlSource> {
  const { version, newest } = await onRecoveredServer(url, database, async from => {
    if (await isForeign(from, target))
      throw new OperatorError(
        `The control database ${database} of the recovered server is of another installation than the archives in ` +
          `${target.description}: nothing was changed`,
      );
    const { rows } = await from.query<{ name: string }>('select name from migrations order by id desc limit 1');
    return { version: rows[0]?.name ?? '', newest: await readNewestChange(from) };
  }).catch(cause => {
    const state = sqlState(cause instanceof OperatorError ? cause.cause : cause);
    if (state !== '3D000' && state !== '42P01') throw cause;
    throw new OperatorError(`The recovered server has no control database ${database}: nothing was changed`, { cause });
  });
  return {
    description: `recovered ${database}, last change ${newest ?? 'unknown'}`,
    at: new Date(newest ?? 0),
    load: target =>
      onRecoveredServer(url, database, async from => {
        await createControlSchema(target, version);
        await withConnection(target, client => copyTables(from, client, notArchived), {
          settings: canonicalTextSettings,
        });
      }),
  };
}
