import type { Middleware } from 'koa';
import { Contention } from '../connections/contention.ts';
import type { TenantRecord } from '../control/records.ts';

/** The requests of one tenant. */
interface TenantQueue {
  /** How many were begun in `turn`, the last turn of the event loop in which there were any. */
  begun: number;
  turn: number;
  /** Those that wait for the next one. */
  readonly waiting: (() => void)[];
}

/** Requests of one tenant: 50 µs each, or more. */
const maxPerTurn = { alone: 32, amongOthers: 8 };

/**
 * Lets the requests of one tenant not crowd out those of the others: only so many of one tenant are begun in one turn of
 * the event loop, and the rest in the next ones. So a flood waits in a line of its own, and whoever comes besides, whose
 * own request takes three or four turns, finds the process with a few things to do first, not with hundreds.
 */
export function fairScheduler(): Middleware {
  const lines = new WeakMap<TenantRecord, TenantQueue>();
  /** Those in which somebody waits. */
  const crowded = new Set<TenantQueue>();
  const neighbours = new Contention();
  const most = (): number => (neighbours.isShared ? maxPerTurn.amongOthers : maxPerTurn.alone);
  let turn = 0;
  let ending = false;

  const endTurn = (): void => {
    turn++;
    ending = false;
    for (const line of crowded) {
      const next = line.waiting.splice(0, most());
      line.turn = turn;
      line.begun = next.length;
      if (line.waiting.length === 0) crowded.delete(line);
      for (const begin of next) begin();
    }
    if (crowded.size > 0) endSoon();
  };
  const endSoon = (): void => {
    if (ending) return;
    ending = true;
    setImmediate(endTurn);
  };

  return (ctx, next) => {
    const { tenant } = ctx.state as { tenant: TenantRecord };
    neighbours.recordUse(tenant.guid);
    endSoon();
    let line = lines.get(tenant);
    if (!line) {
      line = { begun: 0, turn, waiting: [] };
      lines.set(tenant, line);
    }
    if (line.turn !== turn) {
      line.turn = turn;
      line.begun = 0;
    }
    if (line.begun < most()) {
      line.begun++;
      return next();
    }
    crowded.add(line);
    const { waiting } = line;
    return new Promise<void>(resolve => waiting.push(resolve)).then(next);
  };
}
