import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { BaseRetention } from '../../../config-values.ts';
import { type BaseBackup, type BaseFolder, listBaseBackups, unfinished } from './base-folder.ts';
import { withRemovalLease } from './base-leases.ts';
import { basesToKeep } from './base-retention.ts';
import { byPosition, readSegments } from './wal-segments.ts';

/** What was removed of the base backups of a server, and from when on moments can be restored. */
export interface PrunedBases {
  baseBackups: number;
  segments: number;
  /** The ids of those that stay only because a restore reads them, with its process. */
  held: { id: string; pid: number }[];
  /** In ISO 8601; null if the server has no base backup. */
  from: string | null;
}

/**
 * Removes the base backups that `BASE_BACKUP_KEEP` does not keep, and the write-ahead log that only those need. A base
 * backup is renamed before its files go, so that a killed run leaves none that lacks files; the next one removes the
 * rest. What a restore reads stays. Segments in an archive of the operator's own (`backup base --wal`) stay: the operator
 * removes them.
 */
export async function pruneBaseBackups(folder: BaseFolder, keep: BaseRetention, now: Date): Promise<PrunedBases> {
  return withRemovalLease(folder, readers => removeUnneeded(folder, keep, now, readers));
}

/** Returns the ids of the base backups that `BASE_BACKUP_KEEP` does not keep, and changes nothing. */
export async function planBasePrune(folder: BaseFolder, keep: BaseRetention, now: Date): Promise<string[]> {
  const { bases, kept } = await chooseBases(folder, keep, now);
  return bases.filter(base => !kept.has(base)).map(({ id }) => id);
}

async function chooseBases(folder: BaseFolder, keep: BaseRetention, now: Date) {
  const bases = await listBaseBackups(folder);
  const archives = new Map<string, Awaited<ReturnType<typeof readSegments>>>();
  for (const { walArchive } of bases)
    archives.set(walArchive, archives.get(walArchive) ?? (await readSegments(walArchive)));
  return { bases, kept: basesToKeep(bases, keep, now, (from, to) => isContinuous(archives, from, to)) };
}

async function removeUnneeded(
  folder: BaseFolder,
  keep: BaseRetention,
  now: Date,
  readers: ReadonlyMap<string, number>,
): Promise<PrunedBases> {
  const { bases, kept } = await chooseBases(folder, keep, now);
  const held = bases.flatMap(base => {
    const pid = readers.get(base.id);
    return pid === undefined || kept.has(base) ? [] : [{ base, pid }];
  });
  for (const { base } of held) kept.add(base);
  const removed = bases.filter(base => !kept.has(base));
  for (const { id } of removed) {
    const path = folder.base(id);
    // Another command may remove the same one at the same time.
    await rename(path, `${path}${unfinished}`).catch(ignoreMissing);
    await rm(`${path}${unfinished}`, { recursive: true, force: true });
  }
  const remaining = bases.filter(base => kept.has(base));
  const segments = await removeSegmentsBefore(folder, remaining);
  return {
    baseBackups: removed.length,
    segments,
    held: held.map(({ base, pid }) => ({ id: base.id, pid })),
    from: remaining[0]?.finishedAt ?? null,
  };
}

function isContinuous(
  archives: ReadonlyMap<string, (from: string, to: string) => boolean>,
  from: BaseBackup,
  to: BaseBackup,
): boolean {
  const isSame = from.systemIdentifier === to.systemIdentifier && from.walArchive === to.walArchive;
  return isSame && archives.get(to.walArchive)?.(from.firstSegment, to.firstSegment) === true;
}

/** @returns the number of segments and labels that were removed */
async function removeSegmentsBefore(folder: BaseFolder, bases: readonly BaseBackup[]): Promise<number> {
  const [first] = bases.map(({ firstSegment }) => firstSegment).sort(byPosition);
  if (!first) return 0;
  const names = (await readdir(folder.wal).catch(() => [])).filter(
    name => /^[0-9A-F]{24}/.test(name) && byPosition(name, first) < 0,
  );
  for (const name of names) await rm(join(folder.wal, name), { force: true });
  return names.length;
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
