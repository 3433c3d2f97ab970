import type { Logger } from 'pino';
import type { HttpContext, HttpMiddleware, RequestState } from '../../request-state.ts';
import { traceIdOf } from '../../tracing/trace-requests.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** The path pattern of the route, or the path of a page; undefined for an unknown one. */
    route: string | undefined;
  }
}

/** The facts about the tenant of a request that are counted and logged. */
interface RequestTenant {
  readonly guid: string;
  readonly slug: string;
}

/** The outcome of one request. */
export interface RequestOutcome {
  readonly method: string;
  /**
   * The path pattern of the route, never the path that was sent; undefined when no route
   * matched.
   */
  readonly route: string | undefined;
  /** 499 when the client disconnected before the response was complete. */
  readonly status: number;
  /** Duration in milliseconds; of a stream of events, until it began. */
  readonly ms: number;
  /** Bytes of the response body, as they were sent. */
  readonly bytes: number;
  /** The tenant of an authenticated caller; undefined for other callers. */
  readonly tenant: RequestTenant | undefined;
  /**
   * The reason of a 401: an `UnauthorizedReason`, or the problem code when the problem has no
   * reason.
   */
  readonly reason?: string | undefined;
}

/**
 * Logs one line for each request, after its response was sent or its client disconnected. The
 * line has the path pattern of the route. It never has the path that was sent, a header or a
 * body, because these can contain secrets.
 * @param count also receives each outcome, for the metrics
 */
export function accessLog(log: Logger, count: (outcome: RequestOutcome) => void): HttpMiddleware {
  return function logRequest(ctx, next) {
    const startedAt = performance.now();
    ctx.res.on('close', () => {
      const { method } = ctx;
      const {
        traceId,
        route,
        context,
        otherTenantNamed,
        problem,
        reason,
        ipAddress,
        streamsSince,
      }: Partial<RequestState> = ctx.state;

      const tenant = context?.tenant;
      const caller = context?.optionalCaller;

      // clients end streams
      const isComplete = ctx.res.writableFinished || streamsSince !== undefined;
      const status = isComplete ? ctx.res.statusCode : 499;
      const ms = (streamsSince ?? performance.now()) - startedAt;
      const bytes = bodyBytes(ctx, status);

      count({
        method,
        route,
        status,
        ms,
        bytes,
        tenant: caller && tenant,
        reason: reason ?? problem,
      });

      log.info({
        traceId,
        // The name that OpenTelemetry gives it in logs.
        trace_id: traceIdOf(ctx),
        method,
        route,
        status,
        code: problem,
        reason,
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

/**
 * Returns the bytes of the parts of a response that was sent in parts, otherwise the length
 * that it declares: 0 if it was not sent completely, or has no body.
 */
function bodyBytes({ method, res, state }: HttpContext, status: number): number {
  if (state.sentBytes !== undefined) return state.sentBytes;
  return method === 'HEAD' || status === 499 ? 0 : Number(res.getHeader('content-length') ?? 0);
}
