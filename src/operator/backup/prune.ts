import type { Retention } from '../../lib/config/config-values.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { type ArchiveList, listedBytes, type Owner, readArchiveList } from './archive-list.ts';
import {
  type ArchiveRow,
  markRemoving,
  readControlTime,
  recordRemovals,
  reviveArchives,
  type Unremoved,
} from './archive-rows.ts';
import { archivesToKeep, longestKeepMs } from './keep.ts';
import { findLeftOfPurged, listPurged, removeLeftOfPurged } from './purged-archives.ts';
import type { Target } from './target/target.ts';
import type { Claim } from './writer.ts';

const concurrentRemovals = 8;

/**
 * The number of successive refusals after which no further removal is tried: the login may not
 * remove anything.
 */
const maxRefusals = 16;

/**
 * Lists the target, and returns the names of the objects that `removeOld` would remove, the
 * oldest first.
 */
export async function findRemovable(
  control: Queryable,
  target: Target,
  installation: string,
  keep: Retention,
): Promise<string[]> {
  const list = await readArchiveList(control, target, installation);
  for (const { row } of list.missing()) {
    list.remove(row);
  }

  const owners = await readOwners(control);
  // The store's clock is left out: its last reading is that of the last claim, which a full
  // target does not get any more.
  const now = await readEarliestTime(control, undefined);
  const rows = [...chooseUnneeded(list, owners, keep, now), ...markedRows(list, owners)];
  const unneeded = rows.filter(row => list.objectOf(row));
  const purged = await listPurged(target, installation, await findLeftOfPurged(control, list));

  return [
    ...unneeded.map(({ name, time }) => ({ name, time })),
    ...purged.map(({ name, modifiedAt }) => ({ name, time: modifiedAt })),
  ]
    .sort((one, other) => one.time.getTime() - other.time.getTime())
    .map(({ name }) => name);
}

/**
 * Removes the archives that `BACKUP_KEEP` does not keep, those that a killed run has not
 * completed, and everything that is left of purged tenants. If the target refuses to remove an
 * object, the others are removed nevertheless.
 * @returns with the guids of the purged tenants
 * @throws when the claim is lost meanwhile: another run may keep what this one would remove
 */
export async function removeOld(
  control: Queryable,
  target: Target,
  list: ArchiveList,
  keep: Retention,
  claim: Claim,
): Promise<{ removed: number; notRemoved: Unremoved[]; erased: readonly string[] }> {
  const owners = await readOwners(control);
  if (keep.allMs === Number.POSITIVE_INFINITY) await keepMarked(control, target, list, owners);
  const now = await readEarliestTime(control, list.storeTime);
  const unneeded = chooseUnneeded(list, owners, keep, now);
  await markRemoving(
    control,
    target,
    unneeded.map(({ name }) => name),
  );
  for (const row of unneeded) {
    list.put({ ...row, state: 'removing' });
  }

  const removal = await removeMarked(target, list, markedRows(list, owners), claim);
  await recordRemovals(control, target, removal.gone, removal.notRemoved);
  const purged = await removeLeftOfPurged(control, target, list, claim);

  return {
    removed: removal.removed + purged.removed,
    notRemoved: [...removal.notRemoved, ...purged.left],
    erased: purged.tenants,
  };
}

/**
 * Returns the archives that are not needed, of the control database and of tenants that it
 * knows. Archives of other tenants are left alone: they may be the only data that is left of
 * these tenants.
 *
 *   - complete ones that `BACKUP_KEEP` does not keep, of all or of those without a fault;
 *   - unfinished ones of killed runs, where the database has a newer complete one;
 *   - unproved ones that the target does not have, or that are older by its clock than all that
 *     `BACKUP_KEEP` keeps, and than the newest complete one of the database.
 */
function chooseUnneeded(
  list: ArchiveList,
  owners: ReadonlySet<Owner>,
  keep: Retention,
  now: Date,
): ArchiveRow[] {
  const unkept = [...owners].flatMap(owner => {
    const archives = list.of(owner).map(row => ({
      row,
      time: row.time,
      isProved: row.provedAt !== null && row.fault === null,
    }));
    const kept = archivesToKeep(archives, keep, now);
    // A faulty one takes the place of no other: that may be the last one that opens.
    const faultless = archives.filter(({ row }) => row.fault === null);
    const keptBeside = archivesToKeep(faultless, keep, now);

    return archives.filter(each => !kept.has(each) && !keptBeside.has(each)).map(({ row }) => row);
  });
  const rest = list.rows.filter(row => {
    const [newest] = list.of(row.tenant);
    if (!owners.has(row.tenant) || !newest) return false;
    if (row.state === 'writing') return row.time < newest.time;

    return row.state === 'unproved' && isExpired(row, newest, list, keep);
  });

  return [...unkept, ...rest];
}

/** @param newest the newest complete archive of the database */
function isExpired(
  row: ArchiveRow,
  newest: ArchiveRow,
  list: ArchiveList,
  keep: Retention,
): boolean {
  const object = list.objectOf(row);
  if (!object) return true;
  const later = list.objectOf(newest);
  if (!list.storeTime || !later || later.modifiedAt <= object.modifiedAt) return false;

  return list.storeTime.getTime() - object.modifiedAt.getTime() > longestKeepMs(keep);
}

/**
 * Returns the earliest of three clocks, from which ages of archives are counted, so that one
 * that is ahead removes no archive: those of the control database, of this machine, and of the
 * store at the claim. Where all of them are one machine's, nothing tells that it is wrong.
 */
async function readEarliestTime(control: Queryable, storeTime: Date | undefined): Promise<Date> {
  const times = [await readControlTime(control), new Date(), storeTime ?? new Date()];

  return new Date(Math.min(...times.map(time => time.getTime())));
}

/** Returns the rows whose removal has begun; those of purged tenants have their own removal. */
function markedRows(list: ArchiveList, owners: ReadonlySet<Owner>): ArchiveRow[] {
  return list.rows.filter(({ state, tenant }) => state === 'removing' && owners.has(tenant));
}

/**
 * Keeps the archives that the target has refused to remove, now that all archives are kept.
 */
async function keepMarked(
  control: Queryable,
  target: Target,
  list: ArchiveList,
  owners: ReadonlySet<Owner>,
): Promise<void> {
  const listed = markedRows(list, owners).flatMap(row => {
    const object = list.objectOf(row);
    return object ? [listedBytes(object)] : [];
  });

  for (const row of await reviveArchives(control, target, listed, 'removing')) {
    list.put(row);
  }
}

/** Returns the guids of the tenants, and null: the control database. */
async function readOwners(control: Queryable): Promise<Set<Owner>> {
  const { rows } = await control.query<{ guid: string }>('select guid from tenants');

  return new Set([null, ...rows.map(({ guid }) => guid)]);
}

/**
 * Removes objects, and takes them from the list.
 * @throws when the claim is lost meanwhile
 */
async function removeMarked(
  target: Target,
  list: ArchiveList,
  marked: readonly ArchiveRow[],
  claim: Claim,
): Promise<{ removed: number; gone: readonly string[]; notRemoved: readonly Unremoved[] }> {
  const gone: string[] = [];
  const notRemoved: Unremoved[] = [];
  let removed = 0;
  let refusals = 0;

  await runConcurrently(marked, concurrentRemovals, async row => {
    const { name } = row;
    if (!list.objectOf(row)) {
      gone.push(name);
      return;
    }
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
      list.remove(row);
      gone.push(name);
      removed++;
      refusals = 0;
    } catch (error) {
      notRemoved.push({ name, error: errorText(error) });
      refusals++;
    }
  });

  return { removed, gone, notRemoved };
}
