import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { shareConnection } from '../../postgres/shared-connection.ts';
import { operatorName } from '../command/operator-name.ts';
import type { FleetObservers } from '../command/run-fleet.ts';
import { requireMasterKey } from '../people/require-master-key.ts';
import { findCandidates } from './backup-candidates.ts';
import { createBackupEffects } from './backup-effects.ts';
import { withBackupLock } from './backup-lock.ts';
import { isArchived, runBackupSteps } from './backup-protocol.ts';
import type { BackupOutcome, BackupRequest } from './backup-request.ts';
import { beginBackupRun, endBackupRun, type RunCounts } from './backup-runs.ts';
import { readNewest, recordMissing } from './ledger.ts';
import { requireOwner } from './target-owner.ts';
import type { BackupTarget } from './targets/backup-target.ts';

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
    await requireMasterKey(installation.statements, installation.secrets); // a reseal may have ended just before
    const files = await requireOwner(control, target);
    const id = await beginBackupRun(control, operatorName());
    const counts: RunCounts = { archived: 0, unchanged: 0, failed: 0, bytes: 0 };
    const report = (outcome: BackupOutcome): void => {
      counts[outcome.state]++;
      counts.bytes += outcome.bytes;
      onOutcome?.(outcome);
    };
    const missing = await recordMissing(control, target.description, files);
    const effects = createBackupEffects({ installation, control, target, request, report, ...observers });
    const removed = await runBackupSteps(effects);
    await endBackupRun(control, id, { ...counts, failed: counts.failed + missing.length });
    return { ...counts, removed, missing, ms: Math.round(performance.now() - startedAt) };
  });
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
  return withConnection(installation.controlUrl, async client => {
    const control = shareConnection(client);
    await requireOwner(control, target);
    const newest = await readNewest(control, target.description);
    return (await findCandidates(installation, control, slugs)).map(({ guid, slug, counters, fault = null }) => {
      return { slug, isArchived: !isArchived(newest.get(guid), { tenant: guid, counters }), fault };
    });
  });
}
