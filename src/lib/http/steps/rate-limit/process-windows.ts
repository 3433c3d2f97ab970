import { type Rate, SlidingWindows } from './sliding-window.ts';

/** The windows in the memory of a process. */
export type ProcessWindows = ReturnType<typeof createProcessWindows>;

const maxWindows = 100_000; // of each kind: 25 MB, in the worst case 100 MB

/**
 * Prefix of the keys that count failed logins to an account. They have windows of their own:
 * any request can add windows to the others, also a login without a tenant, and so drop old
 * ones. A window of failed logins costs a client a password hash.
 */
export const failuresPrefix = 'rl:failures:';

/**
 * @param now returns the time in milliseconds, by a clock that does not jump when that of the
 *   machine is set
 */
export function createProcessWindows(now: () => number = () => performance.now()) {
  const failures = new SlidingWindows(maxWindows);
  const requests = new SlidingWindows(maxWindows);
  const windowsOf = (key: string): SlidingWindows =>
    key.startsWith(failuresPrefix) ? failures : requests;
  return {
    /** Counts a call if the rate allows it. */
    hit: (key: string, rate: Rate) => windowsOf(key).hit(key, rate, now()),
    /** Returns the state of a window, without counting a call. */
    peek: (key: string, rate: Rate) => windowsOf(key).peek(key, rate, now()),
  };
}
