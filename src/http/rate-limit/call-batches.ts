import type { Rate, RateLimitResult } from './sliding-window.ts';

/** The calls of one client in one turn of the event loop. */
export interface CallBatch {
  readonly key: string;
  readonly rate: Rate;
  calls: number;
  /** The result of the first call. */
  readonly result: PromiseWithResolvers<RateLimitResult>;
}

/**
 * Collects the calls of one turn of the event loop, so that they are counted together: one command for each client, and
 * all commands in one system call.
 * @param send must settle the result of each batch
 * @returns a function that counts one call
 */
export function createCallBatches(
  send: (batches: Iterable<CallBatch>) => void,
): (key: string, rate: Rate) => Promise<RateLimitResult> {
  let batches = new Map<string, CallBatch>();
  const sendAll = (): void => {
    const sending = batches;
    batches = new Map();
    send(sending.values());
  };
  return async (key, rate) => {
    if (batches.size === 0) setImmediate(sendAll);
    const batch = batches.get(key) ?? { key, rate, calls: 0, result: Promise.withResolvers<RateLimitResult>() };
    batches.set(key, batch);
    const earlierCalls = batch.calls++;
    const { remaining, resetMs } = await batch.result.promise;
    return { remaining: Math.max(0, remaining - earlierCalls), resetMs };
  };
}
