import type { TenantRecord } from '../control/records.ts';
import type { HttpContext } from '../lib/request-state.ts';
import { type ContextServices, RequestContext } from './request-context.ts';

declare module '../lib/request-state.ts' {
  interface RequestState {
    /** Has the tenant, and the caller once it is authenticated. */
    context: RequestContext;
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
  ctx.state.context = new RequestContext(
    services,
    tenant,
    {
      traceId,
      ipAddress,
      userAgent: ctx.req.headers['user-agent'] ?? '',
      webOrigin: ctx.req.headers.origin,
      bypassCache,
    },
    ctx.res,
    deadline,
  );
}
