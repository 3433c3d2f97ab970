import type { Context, Middleware } from 'koa';
import type { Directory } from '../control/directory.ts';
import { hashOfLegacyToken } from '../control/legacy-token.ts';
import type { LegacyTokenRecord, RoleRecord, TenantRecord, UserRecord } from '../control/records.ts';
import { problem } from '../errors.ts';
import { invalidToken, type ParsedToken } from '../http/bearer-token.ts';
import { bindCaller, type Caller } from '../tenancy/request-context.ts';
import type { VerifiedToken, VerifiedTokens } from '../tenancy/verified-tokens.ts';
import { type AccessClaims, requireUnexpired, verifyAccessToken } from './access-token.ts';
import type { AuthServices } from './auth-services.ts';

/** What the tenant router has left for us. */
interface ResolvedState {
  tenant: TenantRecord;
  token: string | undefined;
  /** What was proved of the token by an earlier request, and is so still. */
  verified: VerifiedToken | undefined;
  /** The token's header, when nothing is proved of it yet. */
  tokenHeader: ParsedToken['header'];
  /** The record of the token, when it is one of an old client. */
  legacyToken: LegacyTokenRecord | undefined;
}

interface AuthenticateServices extends Pick<AuthServices, 'directory' | 'tokens' | 'usage'> {
  verifiedTokens: VerifiedTokens;
}

/**
 * Proves who is calling and gives the request its caller (`bindCaller`): the token's signature and claims, its session, and the user,
 * with entity and scope as they are now. The tenant router has run before.
 */
export function authenticate(services: AuthenticateServices): Middleware {
  const { directory, tokens, verifiedTokens } = services;
  return async (ctx, next) => {
    const { tenant, token, verified, tokenHeader, legacyToken } = ctx.state as ResolvedState;
    if (token === undefined) throw problem('unauthorized', { headers: { 'WWW-Authenticate': 'Bearer' } });
    if (legacyToken) {
      bindCaller(ctx, await identifyLegacy(ctx, legacyToken, services));
    } else if (verified) {
      requireUnexpired(verified.expiresAt, tokens);
      bindCaller(ctx, verified.caller); // of an active tenant: nothing is kept of another
    } else {
      const claims = verifyAccessToken(token, tokenHeader, tenant, tokens);
      if (tenant.status !== 'active') throw problem('tenant_inactive');
      const proved = await identify(claims, tenant, directory);
      verifiedTokens.add(token, proved);
      bindCaller(ctx, proved.caller);
    }
    await next();
  };
}

/** Who holds the token, and the records that say so. */
async function identify(claims: AccessClaims, tenant: TenantRecord, directory: Directory): Promise<VerifiedToken> {
  const session = await directory.session(claims.sid);
  if (!session || session.revoked || session.tenantId !== tenant.id) throw invalidToken();
  const found = await findUser(directory, tenant, session.userId);
  if (!found || found.user.guid !== claims.user_guid) throw invalidToken();
  const { user, role } = found;
  const proof = { sessionId: claims.sid, tokenId: claims.jti, entityType: claims.entity_type };
  // A permission counts while the token carries it *and* the role still grants it: taking one away works at once.
  const permissions = new Set(claims.permissions.filter(permission => role.permissions.has(permission)));
  const caller = Object.freeze({ ...toCaller(user, role, proof), permissions });
  return { tenant, session, user, role, caller, expiresAt: claims.exp };
}

/** An old client's token: no session and no claims, so everything is as it stands in the control database. */
async function identifyLegacy(
  ctx: Context,
  legacyToken: LegacyTokenRecord,
  { directory, tokens, usage }: Pick<AuthServices, 'directory' | 'tokens' | 'usage'>,
): Promise<Caller> {
  const { tenant, token } = ctx.state as ResolvedState;
  setSunsetHeaders(ctx);
  if (legacyToken.revoked || legacyToken.expiresAt <= tokens.now() * 1_000) throw invalidToken();
  if (tenant.status !== 'active') throw problem('tenant_inactive');
  requireLegacyTokens(tenant);
  const hash = hashOfLegacyToken(token ?? '') ?? '';
  const proof = { sessionId: '', tokenId: hash.slice(0, 16), entityType: legacyToken.entityType };
  const caller = await loadCaller(directory, tenant, legacyToken.userId, proof);
  if (!caller) throw invalidToken();
  usage.count(hash);
  return caller;
}

/** A user of the tenant as they are now, with the permissions of their role; undefined when they may not call at all. */
export async function loadCaller(
  directory: Directory,
  tenant: TenantRecord,
  userId: number,
  proof: Proof,
): Promise<Caller | undefined> {
  const found = await findUser(directory, tenant, userId);
  return found && toCaller(found.user, found.role, proof);
}

type Proof = Pick<Caller, 'sessionId' | 'tokenId' | 'entityType'>;

async function findUser(
  directory: Directory,
  tenant: TenantRecord,
  userId: number,
): Promise<{ user: UserRecord; role: RoleRecord } | undefined> {
  const user = await directory.user(userId);
  if (!user || user.disabled || user.tenantId !== tenant.id) return undefined;
  const role = await directory.role(user.roleId);
  return role && { user, role };
}

function toCaller(user: UserRecord, role: RoleRecord, proof: Proof): Caller {
  return {
    ...proof,
    userId: user.id,
    userGuid: user.guid,
    firstName: user.firstName,
    lastName: user.lastName,
    role: role.name,
    entityId: user.entityId,
    scope: user.scope,
    permissions: role.permissions,
  };
}

/** The feature by which a company keeps its old clients. */
export function requireLegacyTokens({ features }: TenantRecord): void {
  if (!features.includes('legacyTokens')) throw problem('gone', { detail: 'Legacy tokens have been switched off.' });
}

const deprecatedSince = new Date('2026-11-21T00:00:00Z');
const sunset = new Date('2027-12-31T23:59:59Z');

/** Tells an old client that its way of calling ends, and when (RFC 9745, RFC 8594). */
export function setSunsetHeaders(ctx: Context): void {
  ctx.set({ Deprecation: `@${deprecatedSince.getTime() / 1_000}`, Sunset: sunset.toUTCString() });
}
