import type { Context, Middleware } from 'koa';
import { withDeadline } from '../runtime/deadline.ts';

/**
 * Gives the request a deadline, `ctx.state.deadline`: when it passes, the request fails with
 * `unavailable`.
 */
export function limitDuration(deadlineMs: number): Middleware {
  return function setDeadline(ctx, next) {
    return withDeadline(deadlineMs, deadline => {
      ctx.state.deadline = deadline;
      deadline.trace = ctx.state.trace;

      return next();
    });
  };
}

/**
 * The time by which the limit of a silent connection exceeds the deadline, so that the response
 * at the deadline is still sent.
 */
export const sendingMs = 2_500;

/**
 * Gives a request that takes longer than others `ms` from now; its connection may be silent for
 * as long.
 */
export function extendDuration({ state, req }: Context, ms: number): void {
  state.deadline.extend(ms);
  // Node sets the usual one at the next request
  req.socket.setTimeout(state.deadline.leftMs + sendingMs);
}
