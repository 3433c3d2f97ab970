/** Timers that end only when a test ends them. */
export interface HeldTimers {
  /** Number of timers that run now. */
  readonly size: number;
  /** Number of timers that were ever set. */
  readonly total: number;
  /** Ends all timers that run now, as if their time had passed. */
  release(): void;
  /** Ends all timers that run now, and makes `setTimeout` run by the clock again. */
  restore(): void;
}

/**
 * Holds every timer that `setTimeout` sets for exactly `ms` milliseconds; all others run by the
 * clock. So a test can prove what happens before and after a delay or a time limit, and how
 * long it is, on a machine of any speed.
 */
export function holdTimers(ms: number): HeldTimers {
  const held = new Map<NodeJS.Timeout, () => void>();
  let total = 0;
  const real = { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };

  const setHeld = (callback: () => void, delay?: number, ...args: unknown[]): NodeJS.Timeout => {
    if (delay !== ms) return real.setTimeout(callback, delay, ...(args as []));
    const timer = real.setTimeout(() => {}, 2 ** 31 - 1).unref();
    held.set(timer, callback);
    total++;
    return timer;
  };

  const clearHeld = (timer?: NodeJS.Timeout): void => {
    if (timer) held.delete(timer);
    real.clearTimeout(timer);
  };

  const release = (): void => {
    for (const [timer, end] of [...held]) {
      clearHeld(timer);
      end();
    }
  };

  Object.assign(globalThis, { setTimeout: setHeld, clearTimeout: clearHeld });

  return {
    get size() {
      return held.size;
    },
    get total() {
      return total;
    },
    release,
    restore: () => {
      release();
      Object.assign(globalThis, real);
    },
  };
}
