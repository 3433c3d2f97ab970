import type { Attributes, SpanContext, Tracer } from '@opentelemetry/api';
import type { HttpContext, HttpMiddleware, RequestState } from '../request-state.ts';
import { type OpenTelemetry, RecordedTrace } from './recorded-trace.ts';
import type { Trace } from './trace.ts';

declare module '../request-state.ts' {
  interface RequestState {
    /** The trace id of the span of the request; undefined for a request without one. */
    spanTraceId: string | undefined;
    /** The span of the request; undefined unless it is recorded. */
    trace: Trace | undefined;
  }
}

export interface RequestTracing {
  /**
   * The share of the requests without a parent that get a span, from 0 to 1: a span costs time
   * even if it is not recorded.
   */
  readonly share: number;
  /** The address under which clients reach the service. */
  readonly publicUrl: string;
}

/**
 * Gives each request a span, which ends after the response was sent or the client disconnected.
 * Its parent is the span that the header `traceparent` names, and the sampler decides by that
 * whether it is recorded. The spans keep the `tracestate` of other systems.
 */
export function traceRequests(
  api: OpenTelemetry,
  tracer: Tracer,
  { share, publicUrl }: RequestTracing,
): HttpMiddleware {
  const attributes = addressAttributes(publicUrl);

  return function traceRequest(ctx, next) {
    const parent = readTraceparent(ctx.req.headers.traceparent);
    if (!parent && Math.random() >= share) return next();

    const context = parent
      ? api.trace.setSpanContext(
          api.ROOT_CONTEXT,
          remoteSpan(api, parent, ctx.req.headers.tracestate),
        )
      : api.ROOT_CONTEXT;

    const span = tracer.startSpan(ctx.method, { kind: api.SpanKind.SERVER, attributes }, context);
    ctx.state.spanTraceId = span.spanContext().traceId;
    if (!span.isRecording()) return next();

    ctx.state.trace = new RecordedTrace(api, tracer, span);
    ctx.res.on('close', () => {
      span.updateName([ctx.method, ctx.state.route].filter(Boolean).join(' '));
      span.setAttributes(attributesOf(ctx));
      if (ctx.res.statusCode >= 500) span.setStatus({ code: api.SpanStatusCode.ERROR });
      span.end();
    });

    return next();
  };
}

/**
 * Lets no request name a trace. A stranger who names one would choose what is recorded, at our
 * cost, and write into the traces and the log lines of others.
 */
export function ignoreForeignTraces(): HttpMiddleware {
  return function ignoreTraceHeaders({ req: { headers } }, next) {
    if (headers.traceparent !== undefined) delete headers.traceparent;
    if (headers.tracestate !== undefined) delete headers.tracestate;
    return next();
  };
}

/**
 * The trace id of a request for the log: that of its span, or of the client's when this process
 * makes no spans.
 */
export function traceIdOf({ state, req }: HttpContext): string | undefined {
  return state.spanTraceId ?? readTraceparent(req.headers.traceparent)?.traceId;
}

/**
 * The name of the service for its clients. It is a setting: a client or a proxy writes `Host`
 * and `X-Forwarded-…`.
 */
function addressAttributes(publicUrl: string): Attributes {
  const { protocol, hostname, port } = new URL(publicUrl);
  const scheme = protocol.slice(0, -1);

  return {
    'url.scheme': scheme,
    'server.address': hostname,
    'server.port': Number(port) || (scheme === 'https' ? 443 : 80),
  };
}

/**
 * @param tracestate a header of W3C Trace Context §3.3, of which 512 letters at most are kept
 */
function remoteSpan(
  api: OpenTelemetry,
  parent: RemoteParent,
  tracestate: string | string[] | undefined,
): SpanContext {
  const span = { ...parent, isRemote: true };
  return tracestate ? { ...span, traceState: api.createTraceState(String(tracestate)) } : span;
}

/**
 * Returns the attributes of a request: never the path that was sent, a header or a body,
 * because these can contain secrets.
 */
function attributesOf({ method, state, res }: HttpContext) {
  const { route, context, problem, traceId }: Partial<RequestState> = state;
  return {
    'http.request.method': method,
    'http.route': route,
    'http.response.status_code': res.writableFinished ? res.statusCode : 499,
    'error.type': problem,
    'backoffice.tenant': context?.tenant.slug,
    'backoffice.request_id': traceId,
  };
}

/** The span of the client that a request belongs to. */
export interface RemoteParent {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  readonly spanId: string;
  /** Bit 0: the client records the trace. */
  readonly traceFlags: number;
}

const pattern =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/;

/**
 * Reads the header `traceparent` (W3C Trace Context §3.2); undefined when it is missing or not
 * well-formed.
 */
export function readTraceparent(header: string | string[] | undefined): RemoteParent | undefined {
  if (typeof header !== 'string') return undefined;
  const [, traceId, spanId, flags] = pattern.exec(header) ?? [];
  // Only version 00 must end after the flags.
  if (!traceId || !spanId || !flags || (header.startsWith('00') && header.length !== 55)) {
    return undefined;
  }
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1 };
}
