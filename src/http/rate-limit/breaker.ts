interface BreakerOptions {
  /** Made while the breaker is open, in the background: no request waits for it. */
  probe: () => Promise<unknown>;
  onOpen: (cause: unknown) => void;
  onClose: () => void;
}

const failuresToOpen = 3; // in succession: one lost connection is no reason to open
const probeIntervalMs = 500;

/** A circuit breaker: makes no calls to a failing service, and probes it until it works again. */
export function createBreaker({ probe, onOpen, onClose }: BreakerOptions) {
  let failures = 0;
  let isOpen = false;
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;

  const open = (cause: unknown): void => {
    isOpen = true;
    onOpen(cause);
    scheduleProbe();
  };
  const scheduleProbe = (): void => {
    if (isStopped) return;
    timer = setTimeout(() => {
      probe().then(close, scheduleProbe);
    }, probeIntervalMs).unref();
  };
  const close = (): void => {
    if (isStopped) return;
    isOpen = false;
    failures = 0;
    onClose();
  };

  return {
    /** Makes a call. Returns undefined when the call fails, or when the breaker is open and the call was not made. */
    call: async <T>(work: () => Promise<T>): Promise<T | undefined> => {
      if (isOpen) return undefined;
      try {
        const result = await work();
        if (!isOpen) failures = 0;
        return result;
      } catch (error) {
        if (++failures >= failuresToOpen && !isOpen) open(error);
        return undefined;
      }
    },
    /** Probes the service now, and opens the breaker if the probe fails. */
    check: async (): Promise<void> => void (await probe().catch(open)),
    /** True while calls are not made. */
    get isOpen(): boolean {
      return isOpen;
    },
    /** Ends the probes. */
    stop: (): void => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
