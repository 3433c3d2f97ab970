import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { machineTables } from '../backup/archive/archive-database.ts';
import { copyTables } from '../databases/copy/fill-tables.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';
import { readNewestChange } from './after-restore.ts';
import { createControlSchema } from './control-archives.ts';
import type { ControlSource } from './control-source.ts';
import { onRecoveredServer } from './recovered-tenant.ts';

/** A control database on a recovered server. */
export interface RecoveredControl extends ControlSource {
  /** The id of its installation. */
  readonly installation: string;
}

/**
 * Returns the state that a control database has on a recovered server.
 * @param url of any database of the server, with a login that may read all tables
 * @param database the name of the control database
 * @throws {OperatorError} when the server has no such control database
 */
export async function recoveredControl(url: string, database: string): Promise<RecoveredControl> {
  const { version, newest, id } = await onRecoveredServer(url, database, async from => {
    const { rows } = await from.query<{ name: string; id: string }>(
      'select (select name from migrations order by id desc limit 1) as name, id from installation',
    );
    return {
      version: rows[0]?.name ?? '',
      id: rows[0]?.id ?? '',
      newest: await readNewestChange(from),
    };
  }).catch(cause => {
    const state = sqlState(cause instanceof OperatorError ? cause.cause : cause);
    if (state !== '3D000' && state !== '42P01') throw cause;
    throw new OperatorError(
      `The recovered server has no control database ${database}: nothing was changed`,
      { cause },
    );
  });

  return {
    installation: id,
    description: `recovered ${database}, last change ${newest ?? 'unknown'}`,
    at: new Date(newest ?? 0),
    load: target =>
      onRecoveredServer(url, database, async from => {
        await createControlSchema(target, version);
        await withConnection(
          target,
          client => copyTables(from, client, ['migrations', ...machineTables]),
          {
            settings: canonicalTextSettings,
          },
        );
      }),
  };
}
