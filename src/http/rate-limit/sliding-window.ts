import { LRUCache } from 'lru-cache';

/** At most `max` calls in any `windowMs` milliseconds. */
export interface Rate {
  readonly max: number;
  readonly windowMs: number;
}

/** What became of one call. */
export interface RateLimitResult {
  /** Calls that were left before this one; 0 = this one is refused, and was not counted. */
  readonly remaining: number;
  /** Milliseconds until the oldest counted calls leave the window. */
  readonly resetMs: number;
}

/**
 * Counts the calls of one client in at most 22 numbers, however many they are.
 *
 * Calls less than a twentieth of the window apart from the first of their group are counted in one group, which is kept
 * until its *last* call has left the window. So the calls of the last `windowMs` are always counted in full:
 *
 *   never more than `max` calls are allowed in any stretch of `windowMs`, wherever it begins;
 *   a call counts for `windowMs`, and for at most a twentieth of that longer;
 *   limits up to 20 need no groups and are exact, to the millisecond.
 *
 * Two counters weighted by time would take less, but weigh a burst at the end of a window as if it had been spread over
 * it: 5 logins in the 15th minute would become 3 a few minutes later, and 2 more be let in.
 */
interface Window {
  /** When the newest group began. */
  first: number;
  /** When each group was last called, oldest first, and how often it was. */
  ends: number[];
  counts: number[];
}

const maxGroups = 20;

/** Calls closer together than this many milliseconds may be counted as one group. */
export function groupSpan({ max, windowMs }: Rate): number {
  return max > maxGroups ? windowMs / maxGroups : 0;
}

/** Windows of the clients of this process; the least recently seen are forgotten beyond `maxClients`. */
export class SlidingWindows {
  readonly #windows: LRUCache<string, Window>;

  constructor(maxClients: number) {
    this.#windows = new LRUCache({ max: maxClients });
  }

  get size(): number {
    return this.#windows.size;
  }

  /** Counts a call, unless it is one too many. @param now unix time in milliseconds */
  hit(key: string, rate: Rate, now: number): RateLimitResult {
    const window = this.#windows.get(key);
    if (!window) {
      this.#windows.set(key, { first: now, ends: [now], counts: [1] });
      return { remaining: rate.max, resetMs: rate.windowMs };
    }
    const { ends, counts } = window;
    while (ends.length > 0 && ends[0]! <= now - rate.windowMs) {
      ends.shift();
      counts.shift();
    }
    const remaining = Math.max(0, rate.max - counts.reduce((sum, count) => sum + count, 0));
    if (remaining > 0) count(window, groupSpan(rate), now);
    return { remaining, resetMs: ends[0]! + rate.windowMs - now };
  }

  /** Takes back a call that was counted at `now`, because it was refused elsewhere. */
  undo(key: string, now: number): void {
    const window = this.#windows.peek(key);
    const group = window?.ends.findIndex(end => end >= now) ?? -1;
    if (!window || group < 0) return;
    window.counts[group]!--;
    if (window.counts[group] === 0) {
      if (group === window.ends.length - 1) window.first = Number.NEGATIVE_INFINITY; // the next call begins a group
      window.ends.splice(group, 1);
      window.counts.splice(group, 1);
    }
    if (window.ends.length === 0) this.#windows.delete(key);
  }
}

function count(window: Window, span: number, now: number): void {
  const newest = window.ends.length - 1;
  if (newest >= 0 && now - window.first <= span) {
    window.ends[newest] = Math.max(window.ends[newest]!, now); // clocks can be set back
    window.counts[newest]!++;
  } else {
    window.first = now;
    window.ends.push(now);
    window.counts.push(1);
  }
}
