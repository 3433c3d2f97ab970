import type { TenantRecord } from '../control/records.ts';
import type { HttpContext } from '../lib/request-state.ts';
import type { Caller } from './caller.ts';
import { type ContextServices, RequestContext } from './request-context.ts';

declare module '../lib/request-state.ts' {
  interface RequestState {
    tenant: TenantRecord;
    context: RequestContext;
    /** The authenticated caller; undefined for an anonymous request. */
    caller: Caller | undefined;
  }
}

/**
 * Gives a request its context. From here on the request reaches the database of this tenant and
 * no other: the driver of that database makes its entity manager.
 */
export function bindTenant(
  ctx: HttpContext,
  tenant: TenantRecord,
  services: ContextServices,
): void {
  const bypassCache = /\bno-cache\b/i.test(ctx.req.headers['cache-control'] ?? '');
  const { traceId, ipAddress, deadline } = ctx.state;
  ctx.state.tenant = tenant;
  ctx.state.context = new RequestContext(
    services,
    tenant,
    { traceId, ipAddress, bypassCache },
    ctx.res,
    deadline,
  );
}

/**
 * Gives a request its authenticated caller.
 * @throws when the request has a caller already
 */
export function bindCaller(ctx: HttpContext, caller: Caller): void {
  ctx.state.caller = caller;
  ctx.state.context.setCaller(caller);
}
