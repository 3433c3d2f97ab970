import type { Retention } from '../../config/config-values.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { forgetArchive, type LedgerEntry, markRemoving, readLedger } from './ledger.ts';
import { archivesToKeep } from './retention.ts';
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

/**
 * Removes what killed runs have left: files that were not completed, and files whose removal was begun. The caller
 * holds the lock.
 */
export async function removeLeftovers(control: Queryable, target: BackupTarget): Promise<void> {
  const left = (await readLedger(control, target.description)).filter(({ state }) => state !== 'complete');
  if (left.length === 0) return;
  await target.removeUnfinished();
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
