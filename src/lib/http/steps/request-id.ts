import { randomUUID } from 'node:crypto';
import type { HttpMiddleware } from '../../request-state.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** The id of the request. */
    traceId: string;
  }
}

/**
 * Assigns a random id to each request: `X-Request-Id` in responses, `traceId` in problems, logs
 * and audit entries.
 */
export function requestId(): HttpMiddleware {
  return function setRequestId(ctx, next) {
    ctx.state.traceId = randomUUID();
    ctx.res.setHeader('X-Request-Id', ctx.state.traceId);
    return next();
  };
}
