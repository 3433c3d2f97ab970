import { type CallBatch, createCallBatches } from '../http/rate-limit/call-batches.ts';
import type { SharedWindows } from '../http/rate-limit/shared-windows.ts';
import type { Rate, RateLimitResult } from '../http/rate-limit/sliding-window.ts';
import { within } from '../http/rate-limit/within.ts';
import { LocalLeases, noLeaseEnded } from './local-leases.ts';
import type { CountedCalls, CountResult, ToPrimary } from './messages.ts';

/** The windows in the primary process, as a worker uses them. */
interface WindowsInPrimary extends SharedWindows {
  /** Must be called with each `counted` message of the primary process. */
  receive(id: number, results: readonly CountResult[]): void;
  /** Gives a lease back. @returns its unused calls */
  giveBack(key: string): number;
}

/** Much longer than a reply takes on a machine that works: later ones fail, and the worker counts by itself. */
const maxReplyMs = 250;
const reportMs = 250;

/**
 * @param send sends a message to the primary process, and never throws
 * @param now a monotonic clock in milliseconds; replaced in tests
 */
export function createWindowsInPrimary(
  send: (message: Extract<ToPrimary, { type: 'count' }>) => void,
  now: () => number = () => performance.now(),
): WindowsInPrimary {
  const leases = new LocalLeases();
  const waiting = new Map<number, (results: readonly CountResult[]) => void>();
  let lastId = 0;

  /** @param onResults called before anything else happens: a recall may follow in the same turn of the event loop */
  const count = (calls: readonly CountedCalls[], onResults: (results: readonly CountResult[]) => void): void => {
    const id = ++lastId;
    waiting.set(id, onResults);
    send({ type: 'count', id, calls });
  };
  const sendBatches = (batches: Iterable<CallBatch>): void => {
    const sent = [...batches];
    const sentAt = now();
    const requests = sent.map(({ key, rate }) => leases.renew(key, rate, sentAt));
    const calls = sent.map(({ key, rate, calls: number }, index): CountedCalls => {
      const { wanted, unused } = requests[index] ?? noRequest;
      return [key, rate.max, rate.windowMs, number, wanted, unused];
    });
    const reply = Promise.withResolvers<void>();
    within(reply.promise, maxReplyMs).catch(error => {
      for (const { result } of sent) result.reject(error);
    });
    count(calls, results => {
      reply.resolve();
      for (const [index, { key, rate, calls: number, result }] of sent.entries()) {
        const [remaining, resetMs, leased] = results[index] ?? rejected;
        const { isAsking } = requests[index] ?? noRequest;
        const times = { resetMs, sentAt, now: now() };
        leases.receive(key, rate, { calls: leased, isAsking, remaining: remaining - number, ...times });
        result.resolve({ remaining, resetMs });
      }
    });
  };
  const hitInPrimary = createCallBatches(sendBatches);
  /** Reports the leases that have ended by then, so that their unused calls are left to other workers. */
  const endLeases = (time: number): void => {
    const ended = leases.end(time);
    if (ended.length > 0) count(ended, () => {});
  };
  const timer = setInterval(() => endLeases(now()), reportMs).unref();
  return {
    hit: async (key, rate) => leases.take(key, now()) ?? hitInPrimary(key, rate),
    peek: (key, { max, windowMs }: Rate) => {
      const result = Promise.withResolvers<RateLimitResult>();
      count([[key, max, windowMs, 0, 0, noLeaseEnded]], ([[remaining, resetMs] = rejected]) =>
        result.resolve({ remaining, resetMs }),
      );
      return within(result.promise, maxReplyMs);
    },
    started: async () => {},
    close: () => {
      clearInterval(timer);
      endLeases(Number.POSITIVE_INFINITY);
    },
    receive: (id, results) => {
      waiting.get(id)?.(results);
      waiting.delete(id);
    },
    giveBack: key => leases.giveBack(key),
  };
}

/** Never used: the primary process returns a result for each of the calls. */
const rejected: CountResult = [0, 1_000, 0];
const noRequest = { wanted: 0, unused: noLeaseEnded, isAsking: false };
