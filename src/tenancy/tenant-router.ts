import type { IncomingMessage } from 'node:http';
import type { Context, Middleware } from 'koa';
import type { Directory } from '../control/directory.ts';
import { isLegacyToken } from '../control/legacy-token.ts';
import type { TenantRecord } from '../control/records.ts';
import { problem } from '../errors.ts';
import { bearerToken, invalidToken, parseToken } from '../http/bearer-token.ts';
import { isUuid } from '../http/uuid.ts';
import { bindTenant, type ContextServices } from './request-context.ts';
import type { VerifiedTokens } from './verified-tokens.ts';

interface TenantRouterOptions extends ContextServices {
  /** Where tenants and tokens are looked up. */
  directory: Directory;
  verifiedTokens: VerifiedTokens;
  /** Whether a token is not looked at. */
  anonymous: boolean;
}

/**
 * Finds the tenant of a request and gives the request its context (`bindTenant`).
 *
 *   a token                        the tenant it claims, whatever X-Tenant says; the token is verified with that
 *                                  tenant's keys next, so a false claim ends there. No such tenant: 401
 *   a token verified before        its tenant, if nothing has changed since
 *   a token of an old client       the tenant that its record in the control database names, or 401
 *   no token, X-Tenant             the active tenant of that guid
 *   no token, no good X-Tenant     403, the same for missing, malformed, unknown and inactive
 *   an anonymous route             X-Tenant alone counts
 */
export function tenantRouter(options: TenantRouterOptions): Middleware {
  const { directory, verifiedTokens: verified, anonymous } = options;
  return async (ctx, next) => {
    const token = anonymous ? undefined : requestToken(ctx.req);
    ctx.state.token = token;
    ctx.state.verified = token === undefined ? undefined : verified.find(token);
    const tenant = ctx.state.verified?.tenant ?? (await findTenant(ctx, token, directory));
    bindTenant(ctx, tenant, options);
    warnOfOtherTenant(ctx);
    await next();
  };
}

async function findTenant(ctx: Context, token: string | undefined, directory: Directory): Promise<TenantRecord> {
  if (token === undefined) return namedTenant(ctx.req, directory);
  if (isLegacyToken(token)) {
    ctx.state.legacyToken = await directory.legacyToken(token);
    return tokenTenant(ctx.state.legacyToken?.tenantGuid, directory);
  }
  const { header, payload } = parseToken(token);
  ctx.state.tokenHeader = header;
  const tenant = await tokenTenant(payload.tenant_guid, directory);
  const isKnownKey = typeof header.kid !== 'string' || tenant.keys.has(header.kid);
  return isKnownKey ? tenant : ((await directory.reloadTenant(tenant.guid)) ?? tenant);
}

/** The access token, or the token of an old client, which may also stand in a header of its own. */
export function requestToken(request: IncomingMessage): string | undefined {
  const bearer = bearerToken(request);
  const old = request.headers['x-api-token'];
  return bearer ?? (typeof old === 'string' && isLegacyToken(old) ? old : undefined);
}

async function tokenTenant(guid: unknown, directory: Directory): Promise<TenantRecord> {
  const tenant = isUuid(guid) ? await directory.tenant(guid) : undefined;
  if (!tenant) throw invalidToken();
  return tenant;
}

async function namedTenant(request: IncomingMessage, directory: Directory): Promise<TenantRecord> {
  const guid = String(request.headers['x-tenant'] ?? '').toLowerCase();
  const tenant = isUuid(guid) ? await directory.tenant(guid) : undefined;
  if (tenant?.status !== 'active') throw problem('tenant_required');
  return tenant;
}

/** A client that mixes up tenants is told nothing, but its operator can see it. */
function warnOfOtherTenant(ctx: Context): void {
  const named = ctx.req.headers['x-tenant'];
  if (named && ctx.state.token && String(named).toLowerCase() !== ctx.state.tenant.guid)
    ctx.state.otherTenantNamed = true;
}
