import type { ControlAddress } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { errorText } from '../command/texts.ts';
import { tryWithBackupLock } from './backup-lock.ts';
import type { Listing } from './listing.ts';
import { archiveFolder } from './target/archive-name.ts';
import type { Erased, Target } from './target/target.ts';
import { type Claim, claimTarget, requireWriter } from './writer.ts';

/** The outcome of the removal of a purged tenant's archives. */
export interface PurgedArchives {
  readonly state: 'removed' | 'left' | 'kept';
  /** The target from which they were removed; null: there was none. */
  readonly target: string | null;
  /** The number of archives that were removed now, versions included. */
  readonly removed: number;
  /** The objects that the target still has. */
  readonly left: readonly string[];
  readonly error: string | null;
}

/**
 * Removes the archives of a tenant whose rows are gone, and records the objects that the target
 * refuses to remove. It may work at the same time as a run, which holds the lock and has
 * claimed the target for this control database: the run is not working on the tenant, whose
 * lock the purge had.
 * @param target undefined: BACKUP_TARGET is not set
 */
export async function removePurgedArchives(
  { controlUrl }: ControlAddress,
  target: Target | undefined,
  guid: string,
): Promise<PurgedArchives> {
  const outcome = await tryToErase(controlUrl, target, guid);
  const state = outcome.error === null && outcome.left.length === 0 ? 'removed' : 'left';
  const archives: PurgedArchives = { state, target: target?.description ?? null, ...outcome };

  await withConnection(controlUrl, control => recordPurged(control, guid, archives));

  return archives;
}

async function tryToErase(
  controlUrl: string,
  target: Target | undefined,
  guid: string,
): Promise<Erased> {
  if (!target) {
    const hasTarget = await withConnection(controlUrl, async control => {
      const { rowCount } = await control.query(
        'select from installation where target_writer is not null',
      );
      return rowCount === 1;
    });
    return { removed: 0, left: [], error: hasTarget ? 'BACKUP_TARGET is not set here' : null };
  }

  try {
    const erased = await tryWithBackupLock(controlUrl, 'archives', async control => {
      const claim = await claimTarget(control, target, installation =>
        Array.fromAsync(target.list(archiveFolder(installation, guid)), ({ name }) => name),
      );
      const result = await target.erase(archiveFolder(claim.installation, guid));
      await claim.release();
      return { ...result, removed: claim.madeRoom.length + result.removed };
    });
    if (erased) return erased.result;

    const installation = await withConnection(controlUrl, control =>
      requireWriter(control, target),
    );
    return await target.erase(archiveFolder(installation, guid));
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { removed: 0, left: [], error: errorText(error) };
  }
}

/** The archives of a purged tenant that a target still has, or may have. */
interface LeftArchives {
  readonly guid: string;
  readonly slug: string;
}

/**
 * Removes the archives of purged tenants that are left: because their removal did not end, or
 * because the target lists them again.
 * @returns the archives that are still left, each with the reason
 * @throws when the claim is lost meanwhile
 */
export async function removeLeftOfPurged(
  control: Queryable,
  target: Target,
  listing: Listing,
  claim: Claim,
): Promise<{
  removed: number;
  left: readonly { readonly name: string; readonly error: string }[];
}> {
  const purged = await findLeftOfPurged(control, listing);
  const left: { name: string; error: string }[] = [];
  let removed = 0;

  for (const { guid } of purged) {
    await claim.confirm();
    const erased = await target.erase(archiveFolder(claim.installation, guid)).catch(
      (error: Error): Erased => ({
        removed: 0,
        left: listing.of(guid).map(({ name }) => name),
        error: errorText(error),
      }),
    );
    const state = erased.error === null && erased.left.length === 0 ? 'removed' : 'left';
    await recordPurged(control, guid, { state, target: target.description, ...erased });

    removed += erased.removed;
    for (const archive of listing.of(guid)) {
      if (!erased.left.includes(archive.name)) listing.remove(archive);
    }
    const error = erased.error ?? 'the target still lists it';
    const names = erased.left.length > 0 ? erased.left : [archiveFolder(claim.installation, guid)];
    if (state === 'left') left.push(...names.map(name => ({ name, error })));
  }

  return { removed, left };
}

/** Returns the purged tenants whose archives are left, or listed again. */
export async function findLeftOfPurged(
  control: Queryable,
  listing: Listing,
): Promise<LeftArchives[]> {
  const { rows } = await control.query<{ [Field in keyof LeftArchives]: LeftArchives[Field] }>(
    `select distinct on (guid) guid, slug from purged_tenants
      where archives = 'left' or archives = 'removed' and guid = any ($1::uuid[]) order by guid`,
    [listing.owners.filter(owner => owner !== null)],
  );

  return rows;
}

async function recordPurged(
  control: Queryable,
  guid: string,
  { state, target, left, error }: PurgedArchives,
): Promise<void> {
  await control.query(
    `update purged_tenants set archives = $2, archives_target = coalesce($3, archives_target), archives_left = $4,
            archives_error = $5
      where guid = $1 and archives <> 'kept'`,
    [guid, state, target, left, state === 'removed' ? null : error],
  );
}
