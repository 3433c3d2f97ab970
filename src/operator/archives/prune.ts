import type { Retention } from '../../config/config-values.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { forgetArchive, type LedgerEntry, markRemoving, readLedger } from './ledger.ts';
import type { BackupTarget } from './targets/backup-target.ts';

const concurrentRemovals = 8;

/**
 * Removes the archives that `BACKUP_KEEP` does not keep, and those whose key was destroyed. An archive leaves the
 * ledger after its file: a killed run is continued by the next one. An archive with rows that a retention has removed
 * from its tenant stays until its `keptUntil`.
 * @returns the number of archives that were removed
 */
export async function pruneArchives(control: Queryable, target: BackupTarget, keep: Retention): Promise<number> {
  const { removing, unreadable, unneeded } = await chooseArchives(control, target, keep);
  const marked = await markRemoving(control, unreadable, unneeded);
  await removeArchives(control, target, [...removing, ...marked]);
  return removing.length + marked.length;
}

/** Returns the archives that `pruneArchives` would remove, and changes nothing. */
export async function planPrune(control: Queryable, target: BackupTarget, keep: Retention): Promise<LedgerEntry[]> {
  const { removing, unreadable, unneeded } = await chooseArchives(control, target, keep);
  return [...removing, ...unreadable, ...unneeded];
}

/** Returns the archives whose removal was begun, those whose key was destroyed, and those that need not be kept. */
async function chooseArchives(control: Queryable, target: BackupTarget, keep: Retention) {
  const ledger = await readLedger(control, target.description);
  const { rows } = await control.query<{ fingerprint: string }>('select fingerprint from backup_keys');
  const keys = new Set(rows.map(({ fingerprint }) => fingerprint));
  const removing = ledger.filter(({ state }) => state === 'removing');
  const complete = ledger.filter(({ state }) => state === 'complete');
  const unreadable = complete.filter(({ keyFingerprint }) => !keys.has(keyFingerprint));
  const readable = complete.filter(({ keyFingerprint }) => keys.has(keyFingerprint));
  const now = new Date();
  const unneeded = [...Map.groupBy(readable, ({ tenant }) => tenant).values()].flatMap(archives => {
    const kept = archivesToKeep(archives, keep);
    return archives.filter(each => !kept.has(each) && (each.keptUntil === null || each.keptUntil < now));
  });
  return { removing, unreadable, unneeded };
}

/** Only runs write there. */
const writtenFolders = ['tenants/', 'control/'];

/**
 * Removes what killed runs have left: files that were not completed, and files whose removal was begun. The caller
 * holds the lock.
 */
export async function removeLeftovers(control: Queryable, target: BackupTarget): Promise<void> {
  const left = (await readLedger(control, target.description)).filter(({ state }) => state !== 'complete');
  if (left.length === 0) return;
  for (const folder of writtenFolders) await target.removeUnfinished(folder);
  await removeArchives(control, target, left);
}

async function removeArchives(
  control: Queryable,
  target: BackupTarget,
  archives: readonly Pick<LedgerEntry, 'id' | 'file'>[],
): Promise<void> {
  await runConcurrently(archives, concurrentRemovals, async ({ id, file }) => {
    await target.remove(file);
    await forgetArchive(control, id);
  });
}

/**
 * Chooses the archives of one database that are kept: the newest one of each hour, for the last `hours` hours that have
 * one, and so with days, weeks and months (in UTC). Hours without an archive do not count, because an unchanged
 * database has none. The newest archive, and the newest that was proved to be restorable, are always kept.
 */
export function archivesToKeep<Archive extends Pick<LedgerEntry, 'snapshotAt' | 'provedAt'>>(
  archives: readonly Archive[],
  keep: Retention,
): Set<Archive> {
  const newestFirst = archives.toSorted((a, b) => b.snapshotAt.getTime() - a.snapshotAt.getTime());
  const kept = new Set<Archive>(newestFirst.slice(0, 1));
  const proved = newestFirst.find(({ provedAt }) => provedAt !== null);
  if (proved) kept.add(proved);
  const periods: [count: number, periodOf: (time: Date) => string][] = [
    [keep.hours, time => time.toISOString().slice(0, 13)],
    [keep.days, time => time.toISOString().slice(0, 10)],
    [keep.weeks, time => String(weekOf(time))],
    [keep.months, time => time.toISOString().slice(0, 7)],
  ];
  for (const [count, periodOf] of periods) {
    const seen = new Set<string>();
    for (const archive of newestFirst) {
      const period = periodOf(archive.snapshotAt);
      if (seen.has(period)) continue;
      if (seen.size === count) break;
      seen.add(period);
      kept.add(archive);
    }
  }
  return kept;
}

const dayMs = 86_400_000;

/** The number of the week, each from Monday. 1970-01-01 was a Thursday. */
function weekOf(time: Date): number {
  return Math.floor((time.getTime() / dayMs + 3) / 7);
}
