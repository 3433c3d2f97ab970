import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { databaseNameOf } from '../../control/server-urls.ts';
import { withConnection } from '../../postgres/connection.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { type ControlArchiveAccess, listControlArchives, loadControlArchive } from '../archives/control-archive.ts';
import { ArchiveFault } from '../archives/format/archive-fault.ts';
import { migrateControl } from '../schema/migrate-control.ts';
import { type LaterChanges, readLaterChanges } from './later-changes.ts';
import { createEmpty, dropDatabase, restoringName } from './restoring-database.ts';

/**
 * Reads what was revoked and erased by the time of the newest archive of the control database that can be read, when an
 * earlier state is restored: what the backup target knows as revoked must not come back. The restored database gets the
 * ledger of that archive, which has the archives of tenants that were made meanwhile, and no removed ones.
 * @param restored URL of the restored database, at the version of this build
 * @param after the time of the restored state
 * @param onLoad called before an archive is loaded
 * @returns undefined when the target has no later archive that can be read
 */
export async function takeNewerChanges(
  controlUrl: string,
  access: ControlArchiveAccess,
  restored: string,
  after: Date,
  onLoad: () => void,
): Promise<LaterChanges | undefined> {
  const archives = (await listControlArchives(access)).filter(({ at }) => at > after);
  const name = restoringName(databaseNameOf(controlUrl), 'later');
  try {
    for (const { file } of archives) {
      const url = await createEmpty(controlUrl, name);
      onLoad();
      const isLoaded = await loadControlArchive(url, access, file).then(
        () => true,
        error => {
          if (!(error instanceof ArchiveFault)) throw error;
          return false;
        },
      );
      if (!isLoaded) continue;
      await migrateControl(url);
      return await withConnection(url, async later => {
        await withConnection(restored, target => replaceLedger(later, target));
        return readLaterChanges(later);
      });
    }
    return undefined;
  } finally {
    await dropDatabase(controlUrl, name);
  }
}

async function replaceLedger(later: pg.Client, restored: pg.Client): Promise<void> {
  await inTransaction(restored, async () => {
    await restored.query('truncate archives');
    await pipeline(
      later.query(copyTo('copy archives to stdout')),
      restored.query(copyFrom('copy archives from stdin')),
    );
  });
}
