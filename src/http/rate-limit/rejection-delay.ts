import type { Context } from 'koa';

/** Lets a refused client wait; ends at once when it has left. */
export type Delay = (ctx: Context) => Promise<void>;

const maxWaiting = 500; // each holds a socket and some kilobytes; beyond, clients are refused without a wait

/** @param stopping when it is aborted, those who wait are answered at once */
export function createDelay(ms: number, stopping: AbortSignal): Delay {
  const waiting = new Set<() => void>();
  stopping.addEventListener('abort', () => {
    for (const end of waiting) end();
  });
  return ctx =>
    new Promise(resolve => {
      if (waiting.size >= maxWaiting || stopping.aborted || ctx.res.destroyed) return resolve();
      const end = (): void => {
        clearTimeout(timer);
        ctx.res.off('close', end);
        waiting.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      ctx.res.once('close', end);
      waiting.add(end);
    });
}
