/** Keeps calls from something that fails, and finds out by itself when it works again. */
export interface Breaker {
  /** @returns undefined when the call failed, or was not made because those before it have */
  call<T>(work: () => Promise<T>): Promise<T | undefined>;
  /** Tries the probe now; holds calls back if it fails. */
  check(): Promise<void>;
  close(): void;
}

interface BreakerOptions {
  /** Tried while calls are held back, beside the requests: none of them waits for it. */
  probe: () => Promise<unknown>;
  onOpen: (cause: unknown) => void;
  onClose: () => void;
}

const failuresToOpen = 3; // in a row: one lost connection is no reason
const probeEveryMs = 500;

export function createBreaker({ probe, onOpen, onClose }: BreakerOptions): Breaker {
  let failures = 0;
  let open = false;
  let closed = false;
  let timer: NodeJS.Timeout | undefined;

  const fail = (cause: unknown): void => {
    if (++failures >= failuresToOpen && !open) holdBack(cause);
  };
  const holdBack = (cause: unknown): void => {
    open = true;
    onOpen(cause);
    probeLater();
  };
  const probeLater = (): void => {
    if (closed) return;
    timer = setTimeout(() => {
      probe().then(recover, probeLater);
    }, probeEveryMs).unref();
  };
  const recover = (): void => {
    if (closed) return;
    open = false;
    failures = 0;
    onClose();
  };

  return {
    call: async work => {
      if (open) return undefined;
      try {
        const result = await work();
        if (!open) failures = 0;
        return result;
      } catch (error) {
        fail(error);
        return undefined;
      }
    },
    check: async () => void (await probe().catch(holdBack)),
    close: () => {
      closed = true;
      clearTimeout(timer);
    },
  };
}
