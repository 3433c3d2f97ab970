import type { Retention } from '../../lib/config/config-values.ts';

/** The facts that decide whether an archive is kept. */
export interface KeptArchive {
  readonly time: Date;
  /** True if a drill has restored the archive. */
  readonly isProved: boolean;
}

/**
 * Chooses the archives of one database that `BACKUP_KEEP` keeps: all archives of the time span
 * of `all`, then the newest of each hour, day, week and month, for as many of these as the
 * setting has. Hours without an archive do not count, because an unchanged database has none.
 * The newest archive, and the newest that was proved, are always kept.
 * @param now the time of the control database
 */
export function archivesToKeep<Archive extends KeptArchive>(
  archives: readonly Archive[],
  keep: Retention,
  now: Date,
): Set<Archive> {
  // Of two archives with the same time, the proved one comes first, so that a second choice is
  // the same.
  const newestFirst = archives.toSorted(
    (one, other) =>
      other.time.getTime() - one.time.getTime() || Number(other.isProved) - Number(one.isProved),
  );
  const since = now.getTime() - keep.allMs;
  const kept = new Set<Archive>(newestFirst.filter(({ time }) => time.getTime() > since));

  for (const archive of [newestFirst[0], newestFirst.find(({ isProved }) => isProved)]) {
    if (archive) kept.add(archive);
  }

  const periods: [count: number, periodOf: (time: Date) => string][] = [
    [keep.hours, time => time.toISOString().slice(0, 13)],
    [keep.days, time => time.toISOString().slice(0, 10)],
    [keep.weeks, time => String(weekOf(time))],
    [keep.months, time => time.toISOString().slice(0, 7)],
  ];

  for (const [count, periodOf] of periods) {
    const seen = new Set<string>();

    for (const archive of newestFirst) {
      const period = periodOf(archive.time);
      if (seen.has(period)) continue;
      if (seen.size === count) break;

      seen.add(period);
      kept.add(archive);
    }
  }

  return kept;
}

const dayMs = 86_400_000;
const maxMonthDays = 31;

/** Returns the longest time for which `BACKUP_KEEP` keeps an archive. */
export function longestKeepMs({ allMs, hours, days, weeks, months }: Retention): number {
  const hourMs = dayMs / 24;

  return Math.max(
    allMs,
    hours * hourMs,
    days * dayMs,
    weeks * 7 * dayMs,
    months * maxMonthDays * dayMs,
  );
}

/** The number of the week, each from Monday, in UTC. 1970-01-01 was a Thursday. */
function weekOf(time: Date): number {
  return Math.floor((time.getTime() / dayMs + 3) / 7);
}
