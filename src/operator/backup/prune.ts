import type { Retention } from '../../lib/config/config-values.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { readProofs } from './archive-rows.ts';
import { archivesToKeep } from './keep.ts';
import { type Listing, readControlTime, type StoredArchive } from './listing.ts';
import type { Target } from './target/target.ts';
import type { Claim } from './writer.ts';

const concurrentRemovals = 8;

/**
 * The number of successive refusals after which no further removal is tried: the login may not
 * remove anything.
 */
const maxRefusals = 16;

/** An archive that the target has not removed. */
export interface Unremoved {
  readonly name: string;
  readonly error: string;
}

/** The outcome of a removal of archives. */
export interface Removal {
  /** Names of the archives that are gone. */
  readonly removed: readonly string[];
  readonly notRemoved: readonly Unremoved[];
}

/**
 * Returns the archives that `BACKUP_KEEP` does not keep, of the control database and of tenants
 * that it knows. Archives of other tenants are left alone: they may be the only data that is
 * left of these tenants.
 */
export async function chooseUnneeded(
  control: Queryable,
  listing: Listing,
  keep: Retention,
): Promise<StoredArchive[]> {
  const proofs = await readProofs(control);
  const { rows } = await control.query<{ guid: string }>('select guid from tenants');
  const now = await readControlTime(control);

  return [null, ...rows.map(({ guid }) => guid)].flatMap(owner => {
    const archives = listing.of(owner).map(archive => {
      const proof = proofs.get(archive.name);
      return {
        archive,
        time: archive.time,
        isProved: proof?.provedAt != null && proof.fault === null,
      };
    });
    const kept = archivesToKeep(archives, keep, now);

    return archives.filter(each => !kept.has(each)).map(({ archive }) => archive);
  });
}

/**
 * Removes archives, and takes them from the listing. If the target refuses to remove one, the
 * others are removed nevertheless.
 * @throws when the claim is lost meanwhile: another run may keep what this one would remove
 */
export async function removeArchives(
  target: Target,
  listing: Listing,
  archives: readonly StoredArchive[],
  claim: Claim,
): Promise<Removal> {
  const removed: string[] = [];
  const notRemoved: Unremoved[] = [];
  let refusals = 0;

  await runConcurrently(archives, concurrentRemovals, async archive => {
    const { name } = archive;
    if (refusals >= maxRefusals) {
      notRemoved.push({
        name,
        error: 'not tried, because the target has refused to remove others',
      });
      return;
    }
    await claim.confirm();

    try {
      await target.remove(name);
      listing.remove(archive);
      removed.push(name);
      refusals = 0;
    } catch (error) {
      notRemoved.push({ name, error: errorText(error) });
      refusals++;
    }
  });

  return { removed, notRemoved };
}
