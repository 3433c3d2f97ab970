import type pg from 'pg';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { notArchived } from '../../backup/archive-control.ts';
import { inSnapshot } from '../../provisioning/copy-data.ts';
import { canonicalTextSettings } from '../../table-checksums.ts';
import { parseMoment } from '../moment/parse-moment.ts';
import { withRecoveredDatabase } from '../moment/recover-database.ts';
import { copyAll } from '../recovered/copy-all.ts';
import { createControlSchema } from './control-archive.ts';
import type { ControlSource } from './control-source.ts';
import { databaseNameOf, restoringName } from './restoring-database.ts';

/** The first migration creates the server of the control database with this name. */
const controlServer = 'default';

/**
 * Returns the state at a moment, which a scratch server recovers from a base backup and the archived write-ahead log.
 * @param options `root` the folder of `BASE_BACKUP_DIR`; `at` the moment, with its zone; `onStep` is called at the
 *   beginning of each step, with its name
 * @throws {OperatorError} unless `at` is a time with a zone, in the past
 */
export function controlAtMoment(
  { controlUrl }: Pick<Installation, 'controlUrl'>,
  { root, at, onStep }: { root: string; at: string; onStep: (step: string) => void },
): ControlSource {
  const moment = parseMoment(at);
  const database = databaseNameOf(controlUrl);
  const formerNames = [restoringName(database)];
  const wanted = { root, server: controlServer, url: controlUrl, database, formerNames, moment, at, onStep };
  return {
    description: at,
    at: moment,
    load: url =>
      withRecoveredDatabase(wanted, async from => {
        const { rows } = await from.query<{ name: string }>('select name from migrations order by id desc limit 1');
        if (!rows[0]) throw new OperatorError(`Database ${database} was no control database at ${at}`);
        await createControlSchema(url, rows[0].name);
        const fill = (target: pg.Client) => inSnapshot(from, () => copyAll(from, target, notArchived));
        await withConnection(url, fill, { settings: canonicalTextSettings });
      }),
  };
}
