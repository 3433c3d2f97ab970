import type { Retention } from '../../config/config-values.ts';

/** What the choice of archives to keep depends on. */
export interface KeptArchive {
  readonly snapshotAt: Date;
  /** When it was restored and compared; null: never. */
  readonly provedAt: Date | null;
}

/**
 * Chooses the archives of one database that are kept: the newest one of each hour, for the last `hours` hours that have
 * one, and so with days, weeks and months (in UTC). Hours without an archive do not count, because an unchanged
 * database has none. The newest archive, and the newest that was proved to be restorable, are always kept.
 */
export function archivesToKeep<Archive extends KeptArchive>(
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
