import { LRUCache } from 'lru-cache';
import { maxEntries } from '../../../runtime/lru-bounds.ts';

/** At most `max` calls in any `windowMs` milliseconds. */
export interface Rate {
  readonly max: number;
  readonly windowMs: number;
}

/** The result of one call. */
export interface RateLimitResult {
  /**
   * The calls that were left before this one; 0 = this call is rejected and was not counted.
   */
  readonly remaining: number;
  /** Milliseconds until the oldest counted calls leave the window. */
  readonly resetMs: number;
}

/**
 * Counts any number of calls of one client in at most 21 groups.
 *
 * A group counts its first call and all calls in the next twentieth of `windowMs`. It expires
 * as a whole, when its *last* call leaves the window. So every call of the last `windowMs` is
 * counted:
 *
 *   I1: In no interval of `windowMs`, wherever it begins, are more than `max` calls allowed.
 *   I2: A call counts for at least `windowMs`, and for at most a twentieth of `windowMs`
 *       longer.
 *   I3: Rates of up to 20 calls need no groups and are exact to the millisecond.
 *
 * Two counters weighted by time would need less memory, but they treat a burst at the end of a
 * window as if it were spread over the window: 5 logins in the 15th minute would count as 3 a
 * few minutes later, and 2 more would pass.
 */
interface Window {
  /** Time of the first call in the newest group. */
  first: number;
  /** Time of the last call in each group, and number of its calls. Oldest group first. */
  ends: number[];
  counts: number[];
}

const maxGroups = 20;

/**
 * Returns the time for which a group takes further calls after its first call, in milliseconds.
 */
export function groupSpan({ max, windowMs }: Rate): number {
  return max > maxGroups ? windowMs / maxGroups : 0;
}

/**
 * The windows of the clients of this process. Beyond `maxClients`, the least recently used
 * windows are dropped.
 */
export class SlidingWindows {
  readonly #windows: LRUCache<string, Window>;

  constructor(maxClients: number) {
    this.#windows = new LRUCache(maxEntries(maxClients));
  }

  get size(): number {
    return this.#windows.size;
  }

  /**
   * Counts a call if the rate allows it.
   * @param now Unix time in milliseconds
   */
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

  /**
   * Returns the state of a window, without counting a call.
   * @param now Unix time in milliseconds
   */
  peek(key: string, { max, windowMs }: Rate, now: number): RateLimitResult {
    const { ends, counts } = this.#windows.get(key) ?? { ends: [], counts: [] };
    const first = ends.findIndex(end => end > now - windowMs);
    if (first < 0) return { remaining: max, resetMs: windowMs };
    const total = counts.slice(first).reduce((sum, count) => sum + count, 0);
    return { remaining: Math.max(0, max - total), resetMs: ends[first]! + windowMs - now };
  }
}

function count(window: Window, span: number, now: number): void {
  const newest = window.ends.length - 1;
  const end = Math.max(now, window.ends[newest] ?? now); // a clock can be set back
  if (newest >= 0 && now - window.first <= span) {
    window.ends[newest] = end;
    window.counts[newest]! += 1;
  } else {
    window.first = now;
    window.ends.push(end);
    window.counts.push(1);
  }
}
