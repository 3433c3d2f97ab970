import { createCallBatches } from '../http/rate-limit/call-batches.ts';
import type { ProcessWindows } from '../http/rate-limit/process-windows.ts';
import type { SharedWindows } from '../http/rate-limit/shared-windows.ts';
import type { CountedCalls, CountResult, ToPrimary } from './messages.ts';

/** The windows in the primary process, as a worker uses them. */
interface WindowsInPrimary extends SharedWindows {
  /** Must be called with each `counted` message of the primary process. */
  receive(id: number, results: readonly CountResult[]): void;
}

/**
 * Creates the windows that all workers share in their primary process. A worker sends one message for all calls of one
 * turn of its event loop, and gets one in reply.
 * @param send sends a message to the primary process, and never throws
 */
export function createWindowsInPrimary(
  send: (message: Extract<ToPrimary, { type: 'count' }>) => void,
): WindowsInPrimary {
  const waiting = new Map<number, (results: readonly CountResult[]) => void>();
  let lastId = 0;
  const counts = createCallBatches(batches => {
    const id = ++lastId;
    const { promise, resolve } = Promise.withResolvers<readonly CountResult[]>();
    waiting.set(id, resolve);
    send({ type: 'count', id, calls: batches.map(({ key, rate, calls }) => [key, rate.max, rate.windowMs, calls]) });
    return batches.map(async (_, index) => {
      const [remaining = 0, resetMs = 0] = (await promise)[index] ?? [];
      return { remaining, resetMs };
    });
  });
  return {
    ...counts,
    started: async () => {},
    close: () => {},
    receive: (id, results) => {
      waiting.get(id)?.(results);
      waiting.delete(id);
    },
  };
}

/** Counts, in the primary process, the calls of one message of a worker. */
export function countCalls(windows: ProcessWindows, counted: readonly CountedCalls[]): CountResult[] {
  return counted.map(([key, max, windowMs, calls]) => {
    const rate = { max, windowMs };
    const { remaining, resetMs } = calls === 0 ? windows.peek(key, rate) : windows.hit(key, rate, calls);
    return [remaining, resetMs];
  });
}
