import type { BaseRetention } from '../../../config-values.ts';

/** What the choice of base backups to keep depends on. */
export interface KeptBase {
  /** A recovery can stop at any time after this. In ISO 8601. */
  readonly finishedAt: string;
}

/**
 * Chooses the base backups of one server that are kept.
 *
 * With a number, the newest ones stay. With a time, every moment of it stays reachable, by at most three base backups
 * while the write-ahead log has no gap:
 *
 *   B1 (beginning) The newest one from before that time stays: the recovery of the time's first moments begins from it.
 *      Without one from before it, the oldest one stays.
 *   B2 (next) The first one after it stays, and becomes the beginning when the time has passed it. So the write-ahead
 *      log that is kept does not grow for ever.
 *   B3 (newest) The newest one stays: the recovery of the last moments is short.
 *   B4 (gaps) The first one after a gap in the write-ahead log stays: no recovery passes the gap.
 *
 * @param bases the oldest first
 * @param isContinuous whether the archived write-ahead log goes without a gap from one base backup to a later one
 */
export function basesToKeep<Base extends KeptBase>(
  bases: readonly Base[],
  keep: BaseRetention,
  now: Date,
  isContinuous: (from: Base, to: Base) => boolean,
): Set<Base> {
  if (keep.count !== undefined) return new Set(bases.slice(-keep.count));
  const start = now.getTime() - keep.hours * 3_600_000;
  const first = bases.findLastIndex(({ finishedAt }) => Date.parse(finishedAt) <= start);
  const inTime = bases.slice(Math.max(first, 0));
  const afterGaps = inTime.filter((base, at) => {
    const before = inTime[at - 1];
    return before !== undefined && !isContinuous(before, base);
  });
  return new Set([...inTime.slice(0, 2), ...afterGaps, ...inTime.slice(-1)]);
}
