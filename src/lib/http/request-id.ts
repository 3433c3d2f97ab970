import { randomUUID } from 'node:crypto';
import type { Middleware } from 'koa';

/**
 * Assigns a random id to each request: `X-Request-Id` in responses, `traceId` in problems, logs
 * and audit entries.
 */
export function requestId(): Middleware {
  return function setRequestId(ctx, next) {
    ctx.state.traceId = randomUUID();
    ctx.res.setHeader('X-Request-Id', ctx.state.traceId);
    return next();
  };
}
