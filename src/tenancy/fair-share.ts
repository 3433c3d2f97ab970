import type { Middleware } from 'koa';
import { problem } from '../errors.ts';

/** The requests of one tenant: how many are under way, and those that wait for their turn, first come first. */
interface Line {
  readonly guid: string;
  running: number;
  /** Begun in this turn of the event loop. */
  begun: number;
  readonly waiting: Set<{ readonly begin: () => void; readonly timer: NodeJS.Timeout }>;
}

const mostOfTenant = 32; // more under way only wait for each other: it is more than a tenant has connections

/**
 * Lets the requests of one tenant not crowd out those of the others: only so many of one tenant are under way, and only
 * so many are begun in one turn of the event loop. So a flood waits in a line of its own, and whoever comes besides finds
 * the process with a few dozen things to do, not with hundreds.
 * @param waitMs the longest wait for a turn; then 503 `overloaded`
 */
export function fairShare(waitMs: number): Middleware {
  const lines = new Map<string, Line>();
  /** Those in which something was begun in this turn. */
  let busy: Line[] = [];

  const mayBegin = (line: Line): boolean => line.running < mostOfTenant && line.begun < mostOfTenant;
  const begin = (line: Line): void => {
    if (busy.length === 0) setImmediate(turn);
    if (line.begun === 0) busy.push(line);
    line.running++;
    line.begun++;
  };
  const beginWaiting = (line: Line): void => {
    for (const waiter of line.waiting) {
      if (!mayBegin(line)) return;
      line.waiting.delete(waiter);
      clearTimeout(waiter.timer);
      begin(line);
      waiter.begin();
    }
  };
  const turn = (): void => {
    const lately = busy;
    busy = [];
    for (const line of lately) {
      line.begun = 0;
      beginWaiting(line);
      forgetIdle(line);
    }
  };
  const forgetIdle = (line: Line): void => {
    if (line.running + line.begun + line.waiting.size === 0) lines.delete(line.guid);
  };
  const lineOf = (guid: string): Line => {
    let line = lines.get(guid);
    if (!line) {
      line = { guid, running: 0, begun: 0, waiting: new Set() };
      lines.set(guid, line);
    }
    return line;
  };
  const wait = (line: Line): Promise<void> =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        line.waiting.delete(waiter);
        forgetIdle(line);
        reject(problem('overloaded', { cause: new Error('too many requests of the tenant are under way') }));
      }, waitMs);
      const waiter = { begin: resolve, timer };
      line.waiting.add(waiter);
    });

  return async (ctx, next) => {
    const line = lineOf(ctx.state.tenant.guid);
    if (line.waiting.size === 0 && mayBegin(line)) begin(line);
    else await wait(line);
    try {
      await next();
    } finally {
      line.running--;
      beginWaiting(line);
      forgetIdle(line);
    }
  };
}
