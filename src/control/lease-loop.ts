import { renewalMs } from './leases.ts';

interface LeaseLoopOptions {
  /**
   * Leases as much work as this process can do now. Not called again while a call runs. After a
   * failure, it is called again at the next interval.
   */
  lease: () => Promise<void>;
  /** Extends the leases. */
  renew: () => Promise<void>;
  pollMs: number;
}

/** Leases work from the control database: at intervals, and when it is woken. */
export function createLeaseLoop({ lease, renew, pollMs }: LeaseLoopOptions) {
  const timers: NodeJS.Timeout[] = [];
  let isStopping = false;
  let isLeasing = false;
  let isWoken = false;

  const leaseWhileWoken = async (): Promise<void> => {
    isLeasing = true;
    try {
      while (isWoken && !isStopping) {
        isWoken = false;
        await lease();
      }
    } catch {
      // The control database cannot be used, which its other users log. The next poll tries
      // again.
    } finally {
      isLeasing = false;
    }
  };

  const wake = (): void => {
    isWoken = true;
    if (!isLeasing) void leaseWhileWoken();
  };

  return {
    /** Leases now, because there may be work. */
    wake,

    /** Begins to lease work, also work that other processes left when they ended. */
    start: (): void => {
      timers.push(
        setInterval(wake, pollMs),
        setInterval(() => void renew().catch(() => {}), renewalMs),
      );
      for (const timer of timers) timer.unref();
      wake();
    },

    /** Ends the leasing. */
    stop: (): void => {
      isStopping = true;
      for (const timer of timers) clearInterval(timer);
    },

    get isStopping(): boolean {
      return isStopping;
    },
  };
}
