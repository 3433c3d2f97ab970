import type { HttpContext } from '../../../request-state.ts';

/**
 * Waits before a rejected request gets its response. Ends at once when the client disconnects.
 */
export type Delay = (ctx: HttpContext) => Promise<void>;

// each waiter holds a socket and some kilobytes; more clients are rejected without a delay
const maxWaiters = 500;

/** @param draining ends all delays when it is aborted */
export function createDelay(ms: number, draining: AbortSignal): Delay {
  const waiters = new Set<() => void>();
  draining.addEventListener('abort', () => {
    for (const end of waiters) end();
  });

  return ctx =>
    new Promise(resolve => {
      if (waiters.size >= maxWaiters || draining.aborted || ctx.res.destroyed) return resolve();
      const end = (): void => {
        clearTimeout(timer);
        ctx.res.off('close', end);
        waiters.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      ctx.res.once('close', end);
      waiters.add(end);
    });
}
