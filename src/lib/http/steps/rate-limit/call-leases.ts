import { LRUCache } from 'lru-cache';
import { maxEntries } from '../../../runtime/lru-bounds.ts';
import type { Rate, RateLimitResult } from './sliding-window.ts';

/** Calls of a client that were counted in the shared windows together, before they are made. */
interface Lease {
  /** Calls that are not made yet. */
  left: number;
  /** Calls that the shared window allowed before the next one. */
  remaining: number;
  /** Time of the reset of the shared window. */
  readonly resetsAt: number;
  /** Calls from this time on must be counted anew. */
  readonly endsAt: number;
}

/** A client of this process. */
interface LeaseHolder {
  /** The present period began then. */
  periodAt: number;
  /** Calls in the present period and in the one before. */
  calls: number;
  callsBefore: number;
  /** The present lease, and the next one. */
  leases: Lease[];
  isRenewing: boolean;
  /** Calls that were counted and never made. */
  lost: number;
  lostAt: number;
}

/**
 * The maximum calls of a lease. Half of it must last until Redis has counted the next one: for
 * 13,000 calls a second, 10 ms. With 64 on a busy machine, a third of the calls of a flood found
 * no lease.
 */
const maxLease = 256;
/** The maximum calls of a lease as a share of those that the shared window allows. */
const leaseShare = 1 / 64;
/** A smaller lease saves nothing. */
const minLease = 4;
/** A lease lasts for this share of the window, a period. */
const periodShare = 1 / 40;
/** A client with fewer calls in a period has no lease. */
const minCalls = 12;
/** A rate below this one has no leases: the first ones would have less than 20 calls. */
const minLeasedMax = 1_280;
/** Beyond this number, the clients that were idle for the longest time are dropped. */
const maxHolders = 10_000;

/** True for a rate that is high enough for leases. */
export function allowsLeases(rate: Rate): boolean {
  return rate.max >= minLeasedMax;
}

/**
 * Returns the rate by which the shared windows count the calls of a limit with leases, also the
 * calls that are counted one by one: they count for a period longer.
 */
export function leasedRate({ max, windowMs }: Rate): Rate {
  return { max, windowMs: Math.ceil(windowMs + windowMs * periodShare) };
}

/**
 * Counts calls of busy clients ahead, so that their requests do not wait for the shared
 * windows, and other requests of the process not for the rounds of the event loop that those
 * waits take. A lease is never larger than half of the client's calls in a period, and is
 * renewed when half of it is left.
 *
 * I1 of `SlidingWindows` holds for the calls of all processes together, by the time when they
 * are made:
 *
 *   1. A call of a lease is made at most a period after it was counted: the lease ends a period
 *      after the process has asked for it, which was before the count.
 *   2. Every call counts for a window and a period (`leasedRate`), so until a window or more
 *      after it was made.
 *   3. Let the calls of an interval of `windowMs` be given. By 2, when the last one of them was
 *      counted, all others still counted. So there are at most `max`.
 *
 * Nothing is given back: a call that was counted and not made is lost to the client. A process
 * holds at most one and a half leases of a client, and asks for none while it has lost a lease
 * share of the limit. So it holds back at most 2.5 lease shares of a limit, 4 %.
 */
export class CallLeases {
  readonly #holders = new LRUCache<string, LeaseHolder>(maxEntries(maxHolders));
  readonly #count: (key: string, rate: Rate, calls: number) => Promise<RateLimitResult | undefined>;
  readonly #now: () => number;

  /**
   * @param count counts calls in the shared windows; resolves to undefined when it is unknown
   *   whether they were counted
   * @param now returns the time in milliseconds by a monotonic clock
   */
  constructor(
    count: (key: string, rate: Rate, calls: number) => Promise<RateLimitResult | undefined>,
    now: () => number,
  ) {
    this.#count = count;
    this.#now = now;
  }

  /**
   * Takes a call from the lease of a client, and renews the lease.
   * @returns undefined if the client has none, so that the call must be counted by itself
   */
  take(key: string, rate: Rate): RateLimitResult | undefined {
    const now = this.#now();
    const holder = this.#holderOf(key, now);
    countCall(holder, rate.windowMs * periodShare, now);
    dropEnded(holder, now);

    const [lease] = holder.leases;
    if (!lease) return undefined;

    const { remaining, resetsAt } = lease;
    lease.left--;
    lease.remaining--;
    this.#renewAtHalf(key, rate, holder, remaining);

    return { remaining, resetMs: Math.max(1, resetsAt - now) };
  }

  /**
   * Asks for the first lease of a client.
   * @param remaining the calls that the shared window allowed before the last one
   */
  begin(key: string, rate: Rate, remaining: number): void {
    const holder = this.#holders.get(key);
    if (holder) this.#renewAtHalf(key, rate, holder, remaining);
  }

  #holderOf(key: string, now: number): LeaseHolder {
    const known = this.#holders.get(key);
    if (known) return known;

    const holder: LeaseHolder = {
      periodAt: now,
      calls: 0,
      callsBefore: 0,
      leases: [],
      isRenewing: false,
      lost: 0,
      lostAt: now,
    };
    this.#holders.set(key, holder);
    return holder;
  }

  #renewAtHalf(key: string, rate: Rate, holder: LeaseHolder, remaining: number): void {
    const calls = Math.max(holder.calls, holder.callsBefore);
    if (calls < minCalls || holder.isRenewing) return;

    const size = Math.min(maxLease, Math.floor(calls / 2), Math.floor(remaining * leaseShare));
    const left = holder.leases.reduce((sum, lease) => sum + lease.left, 0);
    if (size < minLease || left > size / 2) return;

    if (this.#now() - holder.lostAt > 2 * rate.windowMs) holder.lost = 0;
    if (holder.lost < rate.max * leaseShare) void this.#renew(key, rate, holder, size);
  }

  async #renew(key: string, rate: Rate, holder: LeaseHolder, size: number): Promise<void> {
    const askedAt = this.#now();
    holder.isRenewing = true;
    const result = await this.#count(key, leasedRate(rate), size);
    holder.isRenewing = false;
    if (!result) return lose(holder, size, this.#now());

    holder.leases.push({
      left: Math.min(size, result.remaining),
      remaining: result.remaining,
      resetsAt: this.#now() + result.resetMs,
      endsAt: askedAt + rate.windowMs * periodShare,
    });
  }
}

function countCall(holder: LeaseHolder, periodMs: number, now: number): void {
  const elapsedMs = now - holder.periodAt;
  if (elapsedMs >= periodMs) {
    holder.callsBefore = elapsedMs < 2 * periodMs ? holder.calls : 0;
    holder.calls = 0;
    holder.periodAt = now;
  }
  holder.calls++;
}

/** Drops the leases that have ended or have no call left. */
function dropEnded(holder: LeaseHolder, now: number): void {
  while (holder.leases[0] && (holder.leases[0].left === 0 || holder.leases[0].endsAt <= now)) {
    const { left } = holder.leases.shift()!;
    if (left > 0) lose(holder, left, now);
  }
}

function lose(holder: LeaseHolder, calls: number, now: number): void {
  holder.lost += calls;
  holder.lostAt = now;
}
