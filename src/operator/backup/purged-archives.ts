import type { ControlAddress } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { errorText, storableText } from '../command/texts.ts';
import type { ArchiveList } from './archive-list.ts';
import { markTenantRemoving, recordTenantRemoved, type Unremoved } from './archive-rows.ts';
import { tryWithBackupLock } from './backup-lock.ts';
import { archiveFolder } from './target/archive-name.ts';
import type { Erased, StoredObject, Target } from './target/target.ts';
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

  await withConnection(controlUrl, control => recordPurged(control, target, guid, archives));

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
      const result = await eraseTenant(control, target, claim.installation, guid);
      await claim.release();
      return { ...result, removed: claim.madeRoom.length + result.removed };
    });
    if (erased) return erased.result;

    return await withConnection(controlUrl, async control => {
      const installation = await requireWriter(control, target);
      return eraseTenant(control, target, installation, guid);
    });
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { removed: 0, left: [], error: errorText(error) };
  }
}

/** Removes everything in the folder of a tenant, whatever it is, with all versions. */
async function eraseTenant(
  control: Queryable,
  target: Target,
  installation: string,
  guid: string,
): Promise<Erased> {
  await markTenantRemoving(control, target, guid);

  return target.erase(archiveFolder(installation, guid));
}

/**
 * Removes what is left of purged tenants: because its removal did not end, or because the target
 * lists it again.
 * @returns the guids of these tenants, and the objects that are still left, each with the reason
 * @throws when the claim is lost meanwhile
 */
export async function removeLeftOfPurged(
  control: Queryable,
  target: Target,
  list: ArchiveList,
  claim: Claim,
): Promise<{ removed: number; tenants: readonly string[]; left: readonly Unremoved[] }> {
  const tenants = await findLeftOfPurged(control, list);
  const left: Unremoved[] = [];
  let removed = 0;

  for (const guid of tenants) {
    await claim.confirm();
    const folder = archiveFolder(claim.installation, guid);
    const erased = await eraseTenant(control, target, claim.installation, guid).catch(
      (error: Error): Erased => ({ removed: 0, left: [], error: errorText(error) }),
    );
    const state = erased.error === null && erased.left.length === 0 ? 'removed' : 'left';
    await recordPurged(control, target, guid, { state, target: target.description, ...erased });

    removed += erased.removed;
    const error = erased.error ?? 'the target still lists it';
    const names = erased.left.length > 0 ? erased.left : [folder];
    if (state === 'left') left.push(...names.map(name => ({ name, error })));
  }

  return { removed, tenants, left };
}

/** Returns the guids of purged tenants whose archives are left, or listed again. */
export async function findLeftOfPurged(control: Queryable, list: ArchiveList): Promise<string[]> {
  const { rows } = await control.query<{ guid: string }>(
    `select distinct guid from purged_tenants
      where archives = 'left' or archives = 'removed' and guid = any ($1::uuid[]) order by guid`,
    [list.tenantsWithObjects],
  );

  return rows.map(({ guid }) => guid);
}

/** Returns the objects in the folders of purged tenants. */
export async function listPurged(
  target: Target,
  installation: string,
  guids: readonly string[],
): Promise<StoredObject[]> {
  const folders = await Promise.all(
    guids.map(guid => Array.fromAsync(target.list(archiveFolder(installation, guid)))),
  );

  return folders.flat();
}

async function recordPurged(
  control: Queryable,
  present: Target | undefined,
  guid: string,
  { state, target, left, error }: PurgedArchives,
): Promise<void> {
  await control.query(
    `update purged_tenants set archives = $2, archives_target = coalesce($3, archives_target), archives_left = $4,
            archives_error = $5
      where guid = $1 and archives <> 'kept'`,
    [guid, state, target, left.map(storableText), state === 'removed' ? null : error],
  );
  if (present) await recordTenantRemoved(control, present, guid, left, error);
}
