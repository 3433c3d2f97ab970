import type { Middleware } from 'koa';
import { withDeadline } from '../runtime/deadline.ts';

/** Gives the request a deadline, `ctx.state.deadline`: when it passes, the request fails with `unavailable`. */
export function limitDuration(deadlineMs: number): Middleware {
  return (ctx, next) =>
    withDeadline(deadlineMs, deadline => {
      ctx.state.deadline = deadline;
      deadline.trace = ctx.state.trace;
      return next();
    });
}
