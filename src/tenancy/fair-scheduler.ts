import type { TenantRecord } from '../control/records.ts';
import type { HttpMiddleware } from '../lib/request-state.ts';
import { Contention } from './connections/contention.ts';

/** The requests of one tenant. */
interface TenantQueue {
  /** Number of requests that began in `turn`, the last turn in which any began. */
  begun: number;
  turn: number;
  /** Begins a waiting request. */
  readonly waiting: (() => void)[];
}

/** Requests of one tenant that begin in one turn. A request takes 50 µs or more. */
const maxPerTurn = { alone: 32, shared: 8 };

/**
 * Limits how many requests of one tenant begin in one turn of the event loop; the others wait
 * for the next turns. So a flood of one tenant waits in that tenant's queue. A request of
 * another tenant, which needs three or four turns, then waits in each for a few other requests,
 * not for hundreds.
 */
export function fairScheduler(): HttpMiddleware {
  const queues = new WeakMap<TenantRecord, TenantQueue>();
  /** The queues in which a request waits. */
  const waitingQueues = new Set<TenantQueue>();
  const contention = new Contention();
  const limit = (): number => (contention.isShared ? maxPerTurn.shared : maxPerTurn.alone);
  let turn = 0;
  let isTurnEndScheduled = false;

  const endTurn = (): void => {
    turn++;
    isTurnEndScheduled = false;
    for (const queue of waitingQueues) {
      const next = queue.waiting.splice(0, limit());
      queue.turn = turn;
      queue.begun = next.length;
      if (queue.waiting.length === 0) waitingQueues.delete(queue);
      for (const begin of next) begin();
    }
    if (waitingQueues.size > 0) scheduleTurnEnd();
  };
  const scheduleTurnEnd = (): void => {
    if (isTurnEndScheduled) return;
    isTurnEndScheduled = true;
    setImmediate(endTurn);
  };

  return function takeTurn(ctx, next) {
    const { tenant } = ctx.state;
    contention.recordUse(tenant.guid);
    scheduleTurnEnd();
    let queue = queues.get(tenant);

    if (!queue) {
      queue = { begun: 0, turn, waiting: [] };
      queues.set(tenant, queue);
    }

    if (queue.turn !== turn) {
      queue.turn = turn;
      queue.begun = 0;
    }

    if (queue.begun < limit()) {
      queue.begun++;
      return next();
    }

    waitingQueues.add(queue);
    const { waiting } = queue;

    return new Promise<void>(resolve => waiting.push(resolve)).then(next);
  };
}
