import type { Installation } from '../../control/installation.ts';
import type { Retention } from '../../lib/config/config-values.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { copyListing, forgetProofs } from './archive-rows.ts';
import { withBackupLock } from './backup-lock.ts';
import { readListing } from './listing.ts';
import { chooseUnneeded, type Unremoved } from './prune.ts';
import { findLeftOfPurged } from './purged-archives.ts';
import { removeOld } from './run-backup.ts';
import type { Target } from './target/target.ts';
import { claimTarget, requireWriter } from './writer.ts';

/**
 * Removes the archives that `BACKUP_KEEP` does not keep, and those of purged tenants, as each
 * run does.
 * @throws {OperatorError} when a run is in progress, or another control database writes to the
 *   target
 */
export async function pruneArchives(
  { controlUrl }: Pick<Installation, 'controlUrl'>,
  target: Target,
  keep: Retention,
): Promise<{ removed: number; notRemoved: readonly Unremoved[] }> {
  return withBackupLock(controlUrl, 'archives', async control => {
    const claim = await claimTarget(control, target);
    const listing = await readListing(control, target, claim.installation);

    const result = await removeOld(control, target, listing, keep, claim);
    await forgetProofs(control, listing);
    await copyListing(control, listing, new Set());
    await claim.release();

    return result;
  });
}

/** Returns the names of the archives that `pruneArchives` would remove, and changes nothing. */
export async function planPrune(
  { controlUrl }: Pick<Installation, 'controlUrl'>,
  target: Target,
  keep: Retention,
): Promise<string[]> {
  return withConnection(controlUrl, async control => {
    const listing = await readListing(control, target, await requireWriter(control, target));
    const unneeded = await chooseUnneeded(control, listing, keep);
    const purged = await findLeftOfPurged(control, listing);

    return [...unneeded, ...purged.flatMap(({ guid }) => listing.of(guid))].map(({ name }) => name);
  });
}
