import type { IncomingMessage } from 'node:http';
import type { Context, Middleware } from 'koa';
import type { Directory, TenantRecord } from '../control/directory.ts';
import { problem } from '../errors.ts';
import { bearerToken, invalidToken, parseToken } from '../http/bearer-token.ts';

/**
 * Finds the tenant of a request and puts it in `ctx.state.tenant`.
 *
 *   a token                        the tenant it claims, whatever X-Tenant says; the token is verified with that
 *                                  tenant's keys next, so a false claim ends there. No such tenant: 401
 *   no token, X-Tenant             the active tenant of that guid
 *   no token, no good X-Tenant     403, the same for missing, malformed, unknown and inactive
 *   an anonymous route             X-Tenant alone counts
 */
export function tenantRouter(directory: Directory, { anonymous }: { anonymous: boolean }): Middleware {
  return async (ctx, next) => {
    const token = anonymous ? undefined : bearerToken(ctx.req);
    ctx.state.token = token;
    ctx.state.tenant =
      token === undefined ? await namedTenant(ctx.req, directory) : await claimedTenant(token, directory);
    warnOfOtherTenant(ctx);
    await next();
  };
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

async function claimedTenant(token: string, directory: Directory): Promise<TenantRecord> {
  const guid = parseToken(token).payload.tenant_guid;
  const tenant = typeof guid === 'string' && uuid.test(guid) ? await directory.tenant(guid) : undefined;
  if (!tenant) throw invalidToken();
  return tenant;
}

async function namedTenant(request: IncomingMessage, directory: Directory): Promise<TenantRecord> {
  const guid = String(request.headers['x-tenant'] ?? '').toLowerCase();
  const tenant = uuid.test(guid) ? await directory.tenant(guid) : undefined;
  if (tenant?.status !== 'active') throw problem('tenant_required');
  return tenant;
}

/** A client that mixes up tenants is told nothing, but its operator can see it. */
function warnOfOtherTenant(ctx: Context): void {
  const named = ctx.req.headers['x-tenant'];
  if (named && ctx.state.token && String(named).toLowerCase() !== ctx.state.tenant.guid)
    ctx.state.otherTenantNamed = true;
}
