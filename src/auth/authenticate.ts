import type { Middleware } from 'koa';
import type { Directory, TenantRecord } from '../control/directory.ts';
import { problem } from '../errors.ts';
import { invalidToken } from '../http/bearer-token.ts';
import type { Caller } from '../tenancy/context.ts';
import { type AccessClaims, type TokenSettings, verifyAccessToken } from './access-token.ts';

/**
 * Proves who is calling and puts it in `ctx.state.caller`: the token's signature and claims, its session, and the user,
 * with entity and scope as they are now. The tenant router has run before.
 */
export function authenticate(directory: Directory, settings: TokenSettings): Middleware {
  return async (ctx, next) => {
    const { tenant, token } = ctx.state as { tenant: TenantRecord; token: string | undefined };
    if (token === undefined) throw problem('unauthorized', { headers: { 'WWW-Authenticate': 'Bearer' } });
    const claims = verifyAccessToken(token, tenant, settings);
    if (tenant.status !== 'active') throw problem('tenant_inactive');
    ctx.state.caller = await identify(claims, tenant, directory);
    await next();
  };
}

async function identify(claims: AccessClaims, tenant: TenantRecord, directory: Directory): Promise<Caller> {
  const session = await directory.session(claims.sid);
  if (!session || session.revoked || session.tenantId !== tenant.id) throw invalidToken();
  const user = await directory.user(session.userId);
  if (!user || user.disabled || user.tenantId !== tenant.id || user.guid !== claims.user_guid) throw invalidToken();
  const role = await directory.role(user.roleId);
  if (!role) throw invalidToken();
  return {
    sessionId: claims.sid,
    tokenId: claims.jti,
    userId: user.id,
    userGuid: user.guid,
    firstName: user.firstName,
    lastName: user.lastName,
    role: role.name,
    entityId: user.entityId,
    entityType: claims.entity_type,
    scope: user.scope,
    // A permission counts while the token carries it *and* the role still grants it: taking one away works at once.
    permissions: new Set(claims.permissions.filter(permission => role.permissions.has(permission))),
  };
}
