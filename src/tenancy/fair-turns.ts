import type { Middleware } from 'koa';
import { Neighbours } from './neighbours.ts';

/** The requests of one tenant that were begun in this turn of the event loop, and those that wait for the next. */
interface Line {
  begun: number;
  readonly waiting: (() => void)[];
}

/** Requests of one tenant: 50 µs each, or more. */
const mostInTurn = { alone: 32, amongOthers: 8 };

/**
 * Lets the requests of one tenant not crowd out those of the others: only so many of one tenant are begun in one turn of
 * the event loop, and the rest in the next ones. So a flood waits in a line of its own, and whoever comes besides, whose
 * own request takes three or four turns, finds the process with a few things to do first, not with hundreds.
 */
export function fairTurns(): Middleware {
  const lines = new Map<string, Line>();
  const neighbours = new Neighbours();
  const most = (): number => (neighbours.present ? mostInTurn.amongOthers : mostInTurn.alone);

  const turn = (): void => {
    for (const [guid, line] of lines) {
      const next = line.waiting.splice(0, most());
      line.begun = next.length;
      for (const begin of next) begin();
      if (line.begun === 0) lines.delete(guid);
    }
    if (lines.size > 0) setImmediate(turn);
  };

  return (ctx, next) => {
    const { guid } = ctx.state.tenant;
    neighbours.note(guid);
    let line = lines.get(guid);
    if (!line) {
      if (lines.size === 0) setImmediate(turn);
      line = { begun: 0, waiting: [] };
      lines.set(guid, line);
    }
    if (line.begun < most()) {
      line.begun++;
      return next();
    }
    const { waiting } = line;
    return new Promise<void>(resolve => waiting.push(resolve)).then(next);
  };
}
