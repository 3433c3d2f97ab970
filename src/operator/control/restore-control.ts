import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { requireMasterKey } from '../../control/present-key.ts';
import { databaseNameOf } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { statementsOf } from '../../postgres/statements.ts';
import { type ControlArchiveAccess, listControlArchives, loadControlArchive } from '../archives/control-archive.ts';
import { adoptKeys } from '../archives/data-keys.ts';
import { ArchiveFault } from '../archives/format/archive-fault.ts';
import { matchLedger } from '../archives/match-ledger.ts';
import { readPurgeMarks } from '../archives/target-keys.ts';
import { migrateControl } from '../schema/migrate-control.ts';
import { type AfterRestoreReport, afterRestore } from './after-restore.ts';
import type { ControlSource } from './control-source.ts';
import { type LaterChanges, type ReplayedChanges, readLaterChanges, replayLaterChanges } from './later-changes.ts';
import { type PurgedTenants, removePurged } from './remove-purged.ts';
import {
  createEmpty,
  dropDatabase,
  markReady,
  onServer,
  putInPlace,
  requireRestorable,
  restoringName,
} from './restoring-database.ts';

export interface RestoredControl {
  /** The archive, or what was recovered. */
  file: string;
  /** Undefined when an earlier run has done it. */
  report: (AfterRestoreReport<ReplayedChanges> & { purged: PurgedTenants }) | undefined;
}

/** The steps of a restore of the control database, in this order. */
export const controlSteps = [
  'create database',
  'load data',
  'migrate',
  'store keys',
  'create database for newer changes',
  'load newer changes',
  'remove purged tenants',
  'end sessions and replace keys',
  'match ledger with target',
  'mark as ready',
  'remove empty control database',
  'rename',
  'grant rights',
] as const;
type OnStep = (step: (typeof controlSteps)[number]) => void;

/**
 * Restores the control database. If the command was killed at any point, run it again:
 *
 *   C1 (beside) The data is loaded into another database, brought to the version of this build, and made safe there
 *      (`afterRestore`). So no process sees a part of it, or a session, key or user that was revoked since, as far as
 *      the backup target knows.
 *   C2 (in place) Only a database that is marked as ready gets the name of the control database, and only in place of
 *      one that has no tenant. A run after a killed one begins again, so that it knows also what was revoked meanwhile.
 *   C3 (no other way) Until then, every other command and the service refuse to start, so that none of them fills the
 *      empty control database (`requireNoRestore`).
 *
 * @throws {OperatorError} when the control database is not empty, or the data cannot be read
 */
export async function restoreControl(
  installation: Installation,
  access: ControlArchiveAccess,
  source: ControlSource,
  onStep: OnStep = () => {},
): Promise<RestoredControl> {
  const { controlUrl } = installation;
  const name = databaseNameOf(controlUrl);
  return onServer(controlUrl, async lock => {
    await acquireLock(lock, lockSpaces.control, lockKey(name));
    const isInPlace = (await requireRestorable(controlUrl, source))?.restoredFrom !== undefined;
    const report = isInPlace ? undefined : await restoreAside(installation, access, source, onStep);
    if (!isInPlace) {
      onStep('remove empty control database');
      await putInPlace(controlUrl, restoringName(name), () => onStep('rename'));
    }
    onStep('grant rights');
    await migrateControl(controlUrl); // the login of the service is named after the control database
    return { file: source.description, report };
  });
}

async function restoreAside(
  installation: Installation,
  access: ControlArchiveAccess,
  source: ControlSource,
  onStep: OnStep,
): Promise<RestoredControl['report']> {
  const { controlUrl, secrets } = installation;
  const { keys } = access;
  onStep('create database');
  const url = await createEmpty(controlUrl, restoringName(databaseNameOf(controlUrl)));
  onStep('load data');
  await source.load(url);
  onStep('migrate');
  await migrateControl(url);
  await withConnection(url, client => requireMasterKey(statementsOf(client), secrets));
  onStep('store keys');
  await withConnection(url, client => adoptKeys(client, keys, secrets));
  onStep('create database for newer changes');
  const later = await takeNewerChanges(controlUrl, access, url, source.at, () => onStep('load newer changes'));
  onStep('remove purged tenants');
  const marks = await readPurgeMarks(access.target, secrets);
  const purged = await withConnection(url, client => removePurged(client, installation, marks, keys, later));
  onStep('end sessions and replace keys');
  const replay = later && ((client: pg.Client) => replayLaterChanges(client, later));
  const report = await afterRestore({ controlUrl: url, secrets }, replay);
  onStep('match ledger with target');
  await withConnection(url, client => matchLedger(client, access));
  onStep('mark as ready');
  await markReady(url, source.description);
  return { ...report, purged };
}

/**
 * Reads what was revoked and erased by the time of the newest archive of the control database that can be read, when an
 * earlier state is restored: what the backup target knows as revoked must not come back. The restored database gets the
 * ledger of that archive, which has the archives of tenants that were made meanwhile, and no removed ones.
 * @param restored URL of the restored database, at the version of this build
 * @param after the time of the restored state
 * @param onLoad called before an archive is loaded
 * @returns undefined when the target has no later archive that can be read
 */
async function takeNewerChanges(
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
