import type { Middleware } from 'koa';
import { problem } from '../errors.ts';

/** The requests of one tenant that are worked on, and those that wait for their turn. */
interface Line {
  running: number;
  readonly waiting: Set<Turn>;
}

interface Turn {
  readonly begin: () => void;
  readonly timer: NodeJS.Timeout;
}

const always = 8; // of one tenant: as many as it may have connections, by default
const mostTogether = 32; // enough to keep the databases and Redis busy; what is begun beyond it only makes everybody wait

/**
 * Lets the requests of one tenant not crowd out those of the others: a tenant may always have some under way, and more
 * only while few are under way in all. So a flood waits in a line of its own, and whoever comes besides finds the process
 * with a few dozen things to do, not with hundreds.
 * @param waitMs the longest wait for a turn; then 503 `overloaded`
 */
export function fairShare(waitMs: number): Middleware {
  const lines = new Map<string, Line>();
  let together = 0;

  const mayBegin = (line: Line): boolean => line.running < always || together < mostTogether;
  const lineOf = (guid: string): Line => {
    let line = lines.get(guid);
    if (!line) {
      line = { running: 0, waiting: new Set() };
      lines.set(guid, line);
    }
    return line;
  };
  const turnIn = (line: Line): Promise<void> =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        line.waiting.delete(turn);
        reject(problem('overloaded', { cause: new Error('the tenant has too many requests under way') }));
      }, waitMs);
      const turn: Turn = { begin: resolve, timer };
      line.waiting.add(turn);
    });
  const begin = (line: Line): void => {
    line.running++;
    together++;
  };
  const beginNext = (line: Line): void => {
    const [turn] = line.waiting;
    if (!turn) return;
    line.waiting.delete(turn);
    clearTimeout(turn.timer);
    begin(line);
    turn.begin();
  };
  /** Of the tenants whose requests wait, the one with the fewest under way. */
  const neediest = (): Line | undefined => {
    let found: Line | undefined;
    for (const line of lines.values())
      if (line.waiting.size > 0 && (!found || line.running < found.running)) found = line;
    return found;
  };
  const end = (guid: string, line: Line): void => {
    line.running--;
    together--;
    const next =
      line.running < always && line.waiting.size > 0 ? line : together < mostTogether ? neediest() : undefined;
    if (next) beginNext(next);
    if (line.running === 0 && line.waiting.size === 0) lines.delete(guid);
  };

  return async (ctx, next) => {
    const { guid } = ctx.state.tenant;
    const line = lineOf(guid);
    if (line.waiting.size === 0 && mayBegin(line)) begin(line);
    else await turnIn(line);
    try {
      await next();
    } finally {
      end(guid, line);
    }
  };
}
