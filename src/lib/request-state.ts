import type {} from 'node:http';
import type { DefaultContext, Middleware as KoaMiddleware, ParameterizedContext } from 'koa';

/**
 * The values that the steps of a request leave for the later ones, in `ctx.state`. Each member
 * is declared beside the step that sets it. A member without `undefined` is set before any step
 * that reads it; those that also see a request that has failed earlier read
 * `Partial<RequestState>`.
 */
// biome-ignore lint/suspicious/noEmptyInterface: each step declares its own members
export interface RequestState {}

/** A request and its response, with the state that the steps have set. */
export type HttpContext = ParameterizedContext<RequestState, DefaultContext>;

/** A step of the way of a request. */
export type HttpMiddleware = KoaMiddleware<RequestState, DefaultContext>;

declare module 'node:http' {
  /**
   * The headers that the service reads and the types of Node do not name: Node joins the values
   * of a repeated one to one text.
   */
  interface IncomingHttpHeaders {
    'idempotency-key'?: string;
    'last-event-id'?: string;
    prefer?: string;
  }
}
