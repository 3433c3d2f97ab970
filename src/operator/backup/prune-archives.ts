import type { ControlAddress } from '../../control/installation.ts';
import type { Retention } from '../../lib/config/config-values.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { readArchiveList, settleListing } from './archive-list.ts';
import { forgetGone, type Unremoved } from './archive-rows.ts';
import { withBackupLock } from './backup-lock.ts';
import { findRemovable, removeOld } from './prune.ts';
import type { Target } from './target/target.ts';
import { claimTarget, requireWriter } from './writer.ts';

/**
 * Removes the archives that `BACKUP_KEEP` does not keep, and those of purged tenants, as each
 * run does.
 * @throws {OperatorError} when a run is in progress, or another control database writes to the
 *   target
 */
export async function pruneArchives(
  { controlUrl }: ControlAddress,
  target: Target,
  keep: Retention,
): Promise<{ removed: number; notRemoved: readonly Unremoved[] }> {
  return withBackupLock(controlUrl, 'archives', async control => {
    const claim = await claimTarget(control, target, id =>
      findRemovable(control, target, id, keep),
    );
    const list = await readArchiveList(control, target, claim.installation);
    await settleListing(control, target, list);

    const { removed, notRemoved } = await removeOld(control, target, list, keep, claim);
    await forgetGone(control);
    await claim.release();

    return { notRemoved, removed: claim.madeRoom.length + removed };
  });
}

/** Returns the names of the archives that `pruneArchives` would remove, and changes nothing. */
export async function planPruneArchives(
  { controlUrl }: ControlAddress,
  target: Target,
  keep: Retention,
): Promise<string[]> {
  return withConnection(controlUrl, async control => {
    const installation = await requireWriter(control, target);

    return findRemovable(control, target, installation, keep);
  });
}
