import type { Middleware } from 'koa';
import type { Logger } from 'pino';

/**
 * One line for each request, when its answer has left or the client has gone: never a path as sent, a header or a body,
 * which can hold secrets, but the pattern of the route.
 */
export function accessLog(log: Logger): Middleware {
  return (ctx, next) => {
    const startedAt = performance.now();
    ctx.res.on('close', () => {
      const { traceId, tenant, otherTenantNamed, caller, problem, ipAddress } = ctx.state;
      log.info({
        traceId,
        method: ctx.method,
        route: ctx.state.route,
        status: ctx.res.writableFinished ? ctx.res.statusCode : 499,
        code: problem,
        ms: Math.round((performance.now() - startedAt) * 10) / 10,
        tenant: tenant?.guid,
        otherTenantNamed,
        user: caller?.userGuid,
        ip: ipAddress,
      });
    });
    return next();
  };
}
