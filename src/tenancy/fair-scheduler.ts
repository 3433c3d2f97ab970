import type { TenantRecord } from '../control/records.ts';
import type { HttpMiddleware } from '../lib/request-state.ts';
import { Contention } from './connections/contention.ts';

/** Requests of one tenant that begin in one turn. A request takes 50 µs or more. */
const maxPerTurn = { alone: 32, shared: 4 };

/**
 * Lets requests begin at the end of the turn of the event loop in which they have arrived, at
 * most so many of one tenant; the others wait for the next turns. So a flood of one tenant waits
 * in that tenant's queue. A request of another tenant, which needs three or four turns, then
 * waits in each for a few other requests, not for hundreds.
 *
 * Requests that begin together are answered together, and their sockets are written right one
 * after the other. Where nothing else is waited for, 16 clients get twice as many answers so as
 * if each were answered before the next one is read: a write that wakes a sleeping receiver is
 * expensive.
 */
export function fairScheduler(): HttpMiddleware {
  /** The functions that begin the waiting requests of each tenant. */
  const waiting = new Map<TenantRecord, (() => void)[]>();
  const contention = new Contention();

  const endTurn = (): void => {
    const max = contention.isShared ? maxPerTurn.shared : maxPerTurn.alone;
    for (const [tenant, requests] of waiting) {
      for (const begin of requests.splice(0, max)) begin();
      if (requests.length === 0) waiting.delete(tenant);
    }
    if (waiting.size > 0) setImmediate(endTurn);
  };

  return async function takeTurn(ctx, next) {
    const { tenant } = ctx.state.context;
    contention.recordUse(tenant.guid);

    if (waiting.size === 0) setImmediate(endTurn);
    const { promise, resolve } = Promise.withResolvers<void>();
    const requests = waiting.get(tenant);
    if (requests) requests.push(resolve);
    else waiting.set(tenant, [resolve]);

    await promise;
    await next();
  };
}
