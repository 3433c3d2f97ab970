/** A timer that a `Clock` has set. */
export interface Timer {
  /** Starts the timer again, also after it has fired. */
  refresh(): this;
  /** Lets the process end although the timer is set. */
  unref(): this;
}

/**
 * The monotonic time of a process, and its timers, which work as the functions of Node with these names. A simulation
 * replaces it, because its processes share one thread.
 */
export interface Clock {
  /** Milliseconds since some moment. */
  now(): number;
  setTimeout(run: () => void, ms: number): Timer;
  clearTimeout(timer: Timer | undefined): void;
  setInterval(run: () => void, ms: number): Timer;
  clearInterval(timer: Timer | undefined): void;
}

export const processClock: Clock = {
  now: () => performance.now(),
  setTimeout: (run, ms) => setTimeout(run, ms),
  clearTimeout: timer => clearTimeout(timer as NodeJS.Timeout | undefined),
  setInterval: (run, ms) => setInterval(run, ms),
  clearInterval: timer => clearInterval(timer as NodeJS.Timeout | undefined),
};
