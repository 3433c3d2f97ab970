/** A circuit breaker: makes no calls to a failing service, and probes it until it works again. */
export interface Breaker {
  /** Makes a call. Returns undefined when the call fails, or when the breaker is open and the call was not made. */
  call<T>(work: () => Promise<T>): Promise<T | undefined>;
  /** Probes the service now, and opens the breaker if the probe fails. */
  check(): Promise<void>;
  /** True while calls are not made. */
  readonly isOpen: boolean;
  /** Ends the probes. */
  stop(): void;
}

interface BreakerOptions {
  /** Made while the breaker is open, in the background: no request waits for it. */
  probe: () => Promise<unknown>;
  onOpen: (cause: unknown) => void;
  onClose: () => void;
}

const failuresToOpen = 3; // in succession: one lost connection is no reason to open
const probeIntervalMs = 500;

export function createBreaker({ probe, onOpen, onClose }: BreakerOptions): Breaker {
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
    call: async work => {
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
    check: async () => void (await probe().catch(open)),
    get isOpen() {
      return isOpen;
    },
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
