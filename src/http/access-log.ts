import type { Middleware } from 'koa';
import type { Logger } from 'pino';

/** What became of one request. */
export interface RequestOutcome {
  readonly method: string;
  /** The pattern of the route, never the path as sent; undefined when there is none. */
  readonly route: string | undefined;
  /** 499 when the client left before it was answered. */
  readonly status: number;
  readonly ms: number;
  /** Slug of the caller's tenant, when it is proved who calls. */
  readonly tenant: string | undefined;
}

/**
 * One line for each request, when its answer has left or the client has gone: never a path as sent, a header or a body,
 * which can hold secrets, but the pattern of the route.
 * @param count is told as well, to make numbers of it
 */
export function accessLog(log: Logger, count: (outcome: RequestOutcome) => void): Middleware {
  return (ctx, next) => {
    const startedAt = performance.now();
    ctx.res.on('close', () => {
      const { method } = ctx;
      const { traceId, route, tenant, otherTenantNamed, caller, problem, ipAddress } = ctx.state;
      const status = ctx.res.writableFinished ? ctx.res.statusCode : 499;
      const ms = performance.now() - startedAt;
      count({ method, route, status, ms, tenant: caller && tenant?.slug });
      log.info({
        traceId,
        method,
        route,
        status,
        code: problem,
        ms: Math.round(ms * 10) / 10,
        tenant: tenant?.guid,
        otherTenantNamed,
        user: caller?.userGuid,
        ip: ipAddress,
      });
    });
    return next();
  };
}
