import type { HttpContext, HttpMiddleware } from '../../request-state.ts';
import { type Deadline, withDeadline } from '../../runtime/deadline.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** The moment from which on the request fails with `unavailable`. */
    deadline: Deadline;
  }
}

/** Gives the request a deadline. */
export function limitDuration(deadlineMs: number): HttpMiddleware {
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
export function extendDuration({ state, req }: HttpContext, ms: number): void {
  state.deadline.extend(ms);
  // Node sets the usual one at the next request
  req.socket.setTimeout(state.deadline.leftMs + sendingMs);
}
