import { randomUUID } from 'node:crypto';
import type { Middleware } from 'koa';

/** Gives every request an id of our own, told in `X-Request-Id`, in problems as `traceId`, in logs and audit entries. */
export function requestId(): Middleware {
  return (ctx, next) => {
    ctx.state.traceId = randomUUID();
    ctx.res.setHeader('X-Request-Id', ctx.state.traceId);
    return next();
  };
}
