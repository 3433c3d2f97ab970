import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { operatorName } from '../command/operator-name.ts';
import type { FleetObservers } from '../command/run-fleet.ts';
import { findCandidates } from './backup-candidates.ts';
import { type BackupOutcome, type BackupRequest, createBackupEffects } from './backup-effects.ts';
import { withBackupLock } from './backup-lock.ts';
import { isArchived, runBackupSteps } from './backup-protocol.ts';
import { readNewest, recordMissing } from './ledger.ts';
import { requireOwner } from './target-owner.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** The numbers of a run. */
interface RunCounts {
  archived: number;
  unchanged: number;
  failed: number;
  /** Bytes of the archives that were written. */
  bytes: number;
}

export interface BackupReport extends RunCounts {
  /** Archives that the retention removed. */
  removed: number;
  /** Files of archives that the target should have, and has not, or not in their size. */
  missing: readonly string[];
  ms: number;
}

/**
 * Archives each tenant that has changed since its newest archive, and then the control database; removes the archives
 * that the retention does not keep. A tenant that fails does not affect the others. A run can be killed at any point:
 * `runBackupSteps` says why nothing is lost.
 * An archive that the target has lost makes the run fail once; its tenant is archived again.
 * @throws {OperatorError} when another run is in progress, `MASTER_KEY` is a former one, the target cannot be used or
 *   belongs to another installation, or a tenant does not exist
 */
export async function runBackup(
  installation: Installation,
  target: BackupTarget,
  request: BackupRequest,
  { onOutcome, ...observers }: FleetObservers<BackupOutcome> = {},
): Promise<BackupReport> {
  const startedAt = performance.now();
  return withBackupLock(installation.controlUrl, 'archives', async control => {
    const files = await requireOwner(control, target);
    const id = await beginRun(control);
    const counts: RunCounts = { archived: 0, unchanged: 0, failed: 0, bytes: 0 };
    const report = (outcome: BackupOutcome): void => {
      counts[outcome.state]++;
      counts.bytes += outcome.bytes;
      onOutcome?.(outcome);
    };
    const missing = await recordMissing(control, target.description, files);
    const effects = createBackupEffects({ installation, control, target, request, report, ...observers });
    const removed = await runBackupSteps(effects);
    await endRun(control, id, { ...counts, failed: counts.failed + missing.length });
    return { ...counts, removed, missing, ms: Math.round(performance.now() - startedAt) };
  });
}

/**
 * Runs whose process was killed become `abandoned`: the caller has the lock, so none of them goes on.
 * @returns an id
 */
async function beginRun(control: Queryable): Promise<string | undefined> {
  await control.query(`update backup_runs set state = 'abandoned', finished_at = now() where state = 'running'`);
  const { rows } = await control.query<{ id: string }>(
    'insert into backup_runs (requested_by) values ($1) returning id',
    [operatorName()],
  );
  return rows[0]?.id;
}

/** A run has succeeded if no database failed. */
async function endRun(control: Queryable, id: string | undefined, counts: RunCounts): Promise<void> {
  await control.query(
    `update backup_runs set state = case when $4 = 0 then 'succeeded' else 'failed' end, finished_at = now(),
            archived = $2, unchanged = $3, failed = $4, bytes = $5 where id = $1`,
    [id, counts.archived, counts.unchanged, counts.failed, counts.bytes],
  );
}

/** What a run would do with a tenant. */
export interface PlannedBackup {
  slug: string;
  /** True if it has changed since its newest archive, or may have. */
  isArchived: boolean;
  /** Why it could not be archived; null: nothing is known. */
  fault: string | null;
}

/**
 * Returns the tenants that a run would archive, and those that are unchanged; writes nothing.
 * @throws {OperatorError} when the target belongs to another installation, or a tenant does not exist
 */
export async function planBackup(
  installation: Installation,
  target: BackupTarget,
  { slugs }: Pick<BackupRequest, 'slugs'>,
): Promise<PlannedBackup[]> {
  return withConnection(installation.controlUrl, async control => {
    await requireOwner(control, target);
    const newest = await readNewest(control, target.description);
    return (await findCandidates(installation, control, slugs)).map(candidate => {
      const { tenant, slug, fault = null } = candidate;
      return { slug, isArchived: !isArchived(newest.get(tenant), candidate), fault };
    });
  });
}
