import type { Installation } from '../../control/installation.ts';
import { requireMasterKey } from '../../control/present-key.ts';
import { databaseNameOf } from '../../control/server-urls.ts';
import { acquireLock, lockKey, lockSpaces } from '../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { migrateControl } from '../schema/migrate-control.ts';
import { type AfterRestoreReport, afterRestore } from './after-restore.ts';
import type { ControlSource } from './control-source.ts';
import { type LostSecrets, replaceLostMasterKey } from './replace-master-key.ts';
import { type LaterState, type Replayed, readLaterState, replay } from './replay.ts';
import {
  createEmpty,
  dropControlDatabase,
  markReady,
  onServer,
  putInPlace,
  requireRestorableControl,
  restoringName,
} from './restoring-database.ts';

export interface RestoredControl {
  /** The archive, or the recovered server. */
  source: string;
  /** Undefined when an earlier run has done it. */
  report: (AfterRestoreReport<Replayed> & { readonly lost: LostSecrets | undefined }) | undefined;
}

/** The sources of a restore. */
export interface RestoreSources {
  readonly source: ControlSource;
  /**
   * The newest state that is known, if the source is an older one: access that this state has
   * taken away stays away.
   */
  readonly later: ControlSource | undefined;
  /** Brings the list of archives up to date with the target; undefined: there is no target. */
  readonly restoreList: ((control: Queryable) => Promise<void>) | undefined;
  /** True when the master key of the source is lost, and `MASTER_KEY` takes its place. */
  readonly isKeyLost: boolean;
}

/** The steps of a restore of the control database, in this order. */
export const controlSteps = [
  'create database',
  'load data',
  'migrate',
  'create database for newer changes',
  'load newer changes',
  'end sessions and replace keys',
  'list archives',
  'mark as ready',
  'remove empty control database',
  'rename',
  'grant rights',
] as const;
type OnStep = (step: (typeof controlSteps)[number]) => void;

/**
 * Restores the control database. If the command was killed at any point, run it again:
 *
 *   C1 (beside) The data is loaded into another database, brought to the version of this build,
 *      and made safe there (`afterRestore`). So no process sees a part of it, or a session, key
 *      or user that was revoked since, as far as the newest archive knows.
 *   C2 (in place) Only a database that is marked as ready gets the name of the control
 *      database, and only in place of one that has no tenant. A run after a killed one begins
 *      again, so that it knows also what was revoked meanwhile.
 *   C3 (no other way) Until then, every other command and the service refuse to start, so that
 *      none of them fills the empty control database (`requireNoRestore`).
 *
 * @throws {OperatorError} when the control database is not empty, or the data cannot be read
 */
export async function restoreControl(
  installation: Installation,
  sources: RestoreSources,
  onStep: OnStep = () => {},
): Promise<RestoredControl> {
  const { controlUrl } = installation;
  const { source } = sources;
  const name = databaseNameOf(controlUrl);

  return onServer(controlUrl, async lock => {
    await acquireLock(lock, lockSpaces.control, lockKey(name));
    const isInPlace =
      (await requireRestorableControl(controlUrl, source))?.restoredFrom !== undefined;

    const report = isInPlace ? undefined : await restoreAside(installation, sources, onStep);
    if (!isInPlace) {
      onStep('remove empty control database');
      await putInPlace(controlUrl, restoringName(name), () => onStep('rename'));
    }
    onStep('grant rights');
    // the login of the service is named after the control database
    await migrateControl(controlUrl);

    return { source: source.description, report };
  });
}

async function restoreAside(
  { controlUrl, secrets }: Installation,
  { source, later, restoreList, isKeyLost }: RestoreSources,
  onStep: OnStep,
): Promise<NonNullable<RestoredControl['report']>> {
  onStep('create database');
  const url = await createEmpty(controlUrl, restoringName(databaseNameOf(controlUrl)));
  onStep('load data');
  await source.load(url);
  onStep('migrate');
  await migrateControl(url);
  const lost = await withConnection(url, async client => {
    if (isKeyLost) return replaceLostMasterKey(client, secrets);

    await requireMasterKey(client, secrets);
    return undefined;
  });

  const laterState = later && (await readLater(controlUrl, later, onStep));
  onStep('end sessions and replace keys');
  const report = await afterRestore(
    { controlUrl: url, secrets },
    laterState && (client => replay(client, laterState)),
  );

  onStep('list archives');
  if (restoreList) await withConnection(url, restoreList);
  onStep('mark as ready');
  await markReady(url, source.description);

  return { ...report, lost };
}

async function readLater(
  controlUrl: string,
  later: ControlSource,
  onStep: OnStep,
): Promise<LaterState> {
  const name = restoringName(databaseNameOf(controlUrl), 'later');
  onStep('create database for newer changes');
  const url = await createEmpty(controlUrl, name);

  try {
    onStep('load newer changes');
    await later.load(url);
    await migrateControl(url);

    return await withConnection(url, readLaterState);
  } finally {
    await dropControlDatabase(controlUrl, name);
  }
}
