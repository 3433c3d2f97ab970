import { createCallBatches } from '../http/rate-limit/call-batches.ts';
import type { ProcessWindows } from '../http/rate-limit/process-windows.ts';
import type { SharedWindows } from '../http/rate-limit/shared-windows.ts';
import type { Rate, RateLimitResult } from '../http/rate-limit/sliding-window.ts';
import { within } from '../http/rate-limit/within.ts';
import type { CountedCalls, CountResult, ToPrimary } from './messages.ts';

type CountMessage = Extract<ToPrimary, { type: 'count' }>;

/** The windows in the primary process, as a worker uses them. */
interface WindowsInPrimary extends SharedWindows {
  /** Must be called with each `counted` message of the primary process. */
  receive(id: number, results: readonly CountResult[]): void;
}

/** Much longer than a reply takes on a machine that works: later ones fail, and the worker counts by itself. */
const maxReplyMs = 250;

/** @param send sends a message to the primary process, and never throws */
export function createWindowsInPrimary(send: (message: CountMessage) => void): WindowsInPrimary {
  const waiting = new Map<number, PromiseWithResolvers<readonly CountResult[]>>();
  let lastId = 0;
  const count = async (calls: readonly CountedCalls[]): Promise<RateLimitResult[]> => {
    const id = ++lastId;
    const reply = Promise.withResolvers<readonly CountResult[]>();
    waiting.set(id, reply);
    try {
      send({ type: 'count', id, calls });
      return (await within(reply.promise, maxReplyMs)).map(([remaining, resetMs]) => ({ remaining, resetMs }));
    } finally {
      waiting.delete(id);
    }
  };
  const hit = createCallBatches(batches => {
    const sent = [...batches];
    count(sent.map(({ key, rate, calls }) => [key, rate.max, rate.windowMs, calls])).then(
      results => {
        for (const [index, { result }] of sent.entries()) result.resolve(results[index] ?? rejected);
      },
      error => {
        for (const { result } of sent) result.reject(error);
      },
    );
  });
  return {
    hit,
    peek: async (key, { max, windowMs }) => (await count([[key, max, windowMs, 0]]))[0] ?? rejected,
    started: async () => {},
    close: () => {},
    receive: (id, results) => waiting.get(id)?.resolve(results),
  };
}

/** Never used: the primary process returns a result for each of the calls. */
const rejected: RateLimitResult = { remaining: 0, resetMs: 1_000 };

/** Counts the calls of a worker in the windows of this process. */
export function countCalls(windows: ProcessWindows, calls: readonly CountedCalls[]): CountResult[] {
  return calls.map(([key, max, windowMs, number]) => {
    const rate: Rate = { max, windowMs };
    const { remaining, resetMs } = number === 0 ? windows.peek(key, rate) : windows.hit(key, rate, number);
    return [remaining, resetMs];
  });
}
