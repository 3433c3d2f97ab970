import type { Logger } from 'pino';
import { clockSkewSeconds } from './token-lifetime.ts';

/** The difference of clocks above which a process is reported. Nothing fails yet. */
export const reportedSkewMs = 5_000;
/**
 * The difference that a comparison may not show: the round trip of a beat, a second at most.
 */
const hiddenSkewMs = 1_000;
/**
 * The difference of clocks above which a process is not ready. One process may be ahead by it
 * and another behind by it, so the clocks of two ready processes differ by less than
 * `clockSkewSeconds`, for which tokens are accepted beyond their time. Otherwise a token of the
 * first process would get a 401 from the second, also after a refresh.
 */
export const maxSkewMs = (clockSkewSeconds * 1_000) / 2 - hiddenSkewMs;

/** The clock of this process, compared with that of the control database. */
export class ProcessClock {
  readonly #now: () => number;
  #aheadMs = 0;

  /** @param now the time of the clock, in ms since 1970 */
  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** Milliseconds by which the clock is ahead at least; negative when it is behind. */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  /**
   * Returns the time of the control database, by the last comparison, in ms since 1970: for
   * times that several processes store and compare.
   * @param now the time of the clock of this process
   */
  databaseTime(now: number): number {
    return now - this.#aheadMs;
  }

  /** True when the clock differs too much for the process to be ready. */
  get isWrong(): boolean {
    return Math.abs(this.#aheadMs) >= maxSkewMs;
  }

  /**
   * Compares the clock with a time that the control database has sent.
   * @param databaseMs the time, in ms since 1970
   * @param roundTripMs between the request for the time and now: the time is uncertain by half
   *   of it
   */
  compare(databaseMs: number, roundTripMs: number): void {
    const uncertainMs = roundTripMs / 2;
    const aheadMs = this.#now() - uncertainMs - databaseMs;
    this.#aheadMs = Math.round(Math.sign(aheadMs) * Math.max(0, Math.abs(aheadMs) - uncertainMs));
  }
}

/**
 * Returns a function that logs that the clock of this process differs, that it differs too
 * much, and that it agrees again.
 */
export function reportClock(
  clock: ProcessClock,
  log: Pick<Logger, 'error' | 'warn' | 'info'>,
): () => void {
  let before: 'agrees' | 'differs' | 'wrong' = 'agrees';

  return function report() {
    const { aheadMs, isWrong } = clock;
    const state = isWrong ? 'wrong' : Math.abs(aheadMs) >= reportedSkewMs ? 'differs' : 'agrees';
    if (state === before) return;

    before = state;
    const distance = `${Math.abs(aheadMs / 1_000).toFixed(1)} s`;
    const how = `${distance} ${aheadMs > 0 ? 'ahead of' : 'behind'} that of the control database`;

    if (state === 'agrees') {
      log.info(
        { event: 'clock_agrees', aheadMs },
        'the clock of this process agrees with that of the control database again',
      );
    } else if (state === 'differs') {
      log.warn(
        { event: 'clock_differs', aheadMs },
        `the clock of this process is ${how}: check its time synchronisation`,
      );
    } else {
      log.error(
        { event: 'clock_differs', aheadMs },
        `the clock of this process is ${how}, so it is not ready: set it right`,
      );
    }
  };
}
