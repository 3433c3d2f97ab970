import { createHash, timingSafeEqual } from 'node:crypto';
import { ApiClient } from '../../control/control-entities.ts';
import type { Directory } from '../../control/directory.ts';
import { hashOfLegacyToken } from '../../control/legacy-token.ts';
import { isSignInAllowed } from '../../control/password-logins.ts';
import type {
  LegacyTokenRecord,
  ProgramKeyRecord,
  RoleRecord,
  SessionRecord,
  TenantRecord,
  UserRecord,
} from '../../control/records.ts';
import { basicCredentials } from '../../lib/http/request/basic-credentials.ts';
import { invalidToken } from '../../lib/http/request/bearer-token.ts';
import { type Problem, problem } from '../../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../../lib/request-state.ts';
import { bindTenant } from '../../tenancy/bind-request.ts';
import {
  type Caller,
  findActiveUser,
  hasSecondFactor,
  lacksSecondFactor,
  permitsLegacyTokens,
} from '../../tenancy/caller.ts';
import type { TenantDatabases } from '../../tenancy/connections/tenant-databases.ts';
import { isAdmitted, parseNetworks } from '../../tenancy/program-networks.ts';
import type { ContextServices } from '../../tenancy/request-context.ts';
import type { VerifiedToken, VerifiedTokens } from '../../tenancy/verified-tokens.ts';
import {
  type AccessClaims,
  endOfToken,
  requireUnexpired,
  verifyAccessToken,
} from './access-token.ts';
import type { AuthServices } from './auth-services.ts';
import { findKeyHolder } from './key-holder.ts';

interface AuthenticateServices
  extends Pick<AuthServices, 'directory' | 'tokens' | 'usage' | 'keyUses'> {
  databases: Pick<TenantDatabases, 'openAhead'>;
  verifiedTokens: VerifiedTokens;
}

/**
 * Authenticates the caller and gives it to the context of the request: verifies the token's
 * signature and claims, checks the session, and loads the user with the current entity and
 * scope. The key of a program stands in the place of token and session. Runs after the tenant
 * router.
 */
export function authenticate(services: AuthenticateServices): HttpMiddleware {
  const { databases, directory, tokens, verifiedTokens } = services;

  return async function authenticateUser(ctx, next) {
    const { context, credentials } = ctx.state;
    const { tenant } = context;
    if (!credentials) {
      throw problem('unauthorized', {
        reason: 'no_token',
        headers: { 'WWW-Authenticate': 'Bearer' },
      });
    }

    const { token } = credentials;
    if ('legacyToken' in credentials) {
      context.setCaller(await identifyLegacy(ctx, token, credentials.legacyToken, services));
    } else if ('verified' in credentials) {
      // the tenant is active: tokens of other tenants are not stored
      context.setCaller(admitCaller(ctx, credentials.verified, services));
    } else if ('programKey' in credentials) {
      const identified = await identifyProgram(ctx, credentials.programKey, services);
      verifiedTokens.add(token, identified);
      context.setCaller(admitCaller(ctx, identified, services));
    } else {
      const { header } = credentials;
      const claims = verifyAccessToken(token, header, tenant, tokens);
      if (tenant.status !== 'active') throw problem('tenant_inactive');
      // The token is genuine. Nothing is read on the connection before its session is valid.
      databases.openAhead(tenant);
      const keyId = String(header.kid);
      const identified =
        claims.client_id === undefined
          ? await identify(claims, keyId, tenant, directory)
          : await identifyByKeyOfToken(ctx, claims, keyId, services);
      verifiedTokens.add(token, identified);
      context.setCaller(admitCaller(ctx, identified, services));
    }

    await next();
  };
}

/**
 * Determines the caller from the claims, and returns it with the records that it depends on.
 * @throws {Problem} `invalid_token`
 */
async function identify(
  claims: AccessClaims,
  keyId: string,
  tenant: TenantRecord,
  directory: Directory,
): Promise<VerifiedToken> {
  const session = await directory.session(claims.sid);
  if (!session || session.revoked || session.tenantId !== tenant.id) throw invalidToken('session');

  const found = await findActiveUser(directory, tenant.id, session.userId);
  if (!found || found.user.guid !== claims.user_guid || found.user.isProgram) {
    throw invalidToken('user');
  }

  const { user, role } = found;
  if (lacksSecondFactor(session, role)) throw invalidToken('second_factor');
  if (!isSignInAllowed(tenant, session)) throw invalidToken('sign_in_rule');

  const endsAt = endOfSession(session, claims);
  const credentials = {
    sessionId: claims.sid,
    passwordIsShort: isPasswordShort(session),
    tokenId: claims.jti,
    endsAt,
    keyId,
    entityType: claims.entity_type,
  };

  const permissions = grantedBoth(claims, role);
  const caller = Object.freeze({ ...toCaller(user, role, credentials), permissions });

  return { tenant, session, user, role, caller, endsAt };
}

/** Returns the time from which a token is refused, in seconds since 1970. */
function endOfSession({ endsAt }: SessionRecord, claims: AccessClaims): number {
  const end = endOfToken(claims);

  return endsAt === undefined ? end : Math.min(end, endsAt / 1_000);
}

/**
 * Beside a second factor, a shorter password will do; and of a login without a password nobody
 * knows it. Undefined, never false, as in `me`.
 */
function isPasswordShort(session: SessionRecord): true | undefined {
  const { passwordIsShort, methods } = session;
  return (passwordIsShort && methods.includes('pwd') && !hasSecondFactor(session)) || undefined;
}

/**
 * Returns the permissions of a token. One counts only while the token carries it *and* the role
 * grants it: revoking one takes effect at once.
 */
function grantedBoth(claims: AccessClaims, role: RoleRecord): ReadonlySet<string> {
  return new Set(claims.permissions.filter(permission => role.permissions.has(permission)));
}

/**
 * Determines the caller of the access token of a program, which ends with the key that it was
 * issued for.
 * @throws {Problem} those of `identifyProgram`
 */
async function identifyByKeyOfToken(
  ctx: HttpContext,
  claims: AccessClaims,
  keyId: string,
  services: Pick<AuthServices, 'directory' | 'tokens'>,
): Promise<VerifiedToken> {
  const key = await services.directory.programKey(claims.sid);
  if (!key) throw invalidToken('program_key');

  const identified = await identifyProgram(ctx, key, services);
  if (identified.user.guid !== claims.user_guid) throw invalidToken('user');

  const endsAt = Math.min(identified.endsAt, endOfToken(claims));
  const permissions = grantedBoth(claims, identified.role);
  const caller = Object.freeze({ ...identified.caller, endsAt, keyId, permissions });
  return { ...identified, caller, endsAt };
}

/**
 * Determines the caller of the key of a program, which has the rights that its program has now.
 * @throws {Problem} `invalid_token`, `token_expired`, `tenant_inactive`
 */
async function identifyProgram(
  ctx: HttpContext,
  key: ProgramKeyRecord,
  services: Pick<AuthServices, 'directory' | 'tokens'>,
): Promise<VerifiedToken> {
  const { context, ipAddress } = ctx.state;
  const { tenant } = context;
  const holder = await findKeyHolder(key, tenant, ipAddress, services);
  if (holder === 'tenant' && tenant.status !== 'active') throw problem('tenant_inactive');
  if (typeof holder === 'string') {
    throw invalidToken(holder, holder === 'expired' ? 'token_expired' : 'invalid_token');
  }

  const { user, role } = holder;
  const endsAt = key.expiresAt / 1_000;
  const caller = toCaller(user, role, {
    sessionId: '',
    program: { keyName: key.name, networks: parseNetworks(user.networks) },
    tokenId: key.id,
    endsAt,
    entityType: null,
  });

  return { tenant, session: key, user, role, caller: Object.freeze(caller), endsAt };
}

/**
 * Returns the caller of this request, while the token has not expired. A program is admitted
 * from its networks only, at each request, and its key counts as used.
 * @throws {Problem} `invalid_token`, `token_expired`
 */
function admitCaller(
  ctx: HttpContext,
  { caller, endsAt }: VerifiedToken,
  { keyUses, tokens }: Pick<AuthServices, 'keyUses' | 'tokens'>,
): Caller {
  const { program, tokenId } = caller;
  const { ipAddress: address } = ctx.state;
  if (program && !isAdmitted(program.networks, address)) throw invalidToken('network');
  requireUnexpired(endsAt, tokens);
  if (!program) return caller;

  keyUses.note(tokenId);
  return { ...caller, program: { ...program, address } };
}

/**
 * Determines the caller of a legacy token, from the control database alone: such a token has
 * neither session nor claims.
 * @throws {Problem} `invalid_token`, `tenant_inactive`, `gone`
 */
async function identifyLegacy(
  ctx: HttpContext,
  token: string,
  legacyToken: LegacyTokenRecord,
  { directory, tokens, usage }: Pick<AuthServices, 'directory' | 'tokens' | 'usage'>,
): Promise<Caller> {
  const { tenant } = ctx.state.context;
  setSunsetHeaders(ctx);
  if (legacyToken.revoked || legacyToken.expiresAt <= tokens.now() * 1_000) {
    throw invalidToken('legacy_token');
  }
  if (tenant.status !== 'active') throw problem('tenant_inactive');

  requireLegacyTokens(tenant);
  const hash = hashOfLegacyToken(token) ?? '';
  const credentials = {
    sessionId: '',
    legacyTokenHash: hash,
    tokenId: hash.slice(0, 16),
    endsAt: legacyToken.expiresAt / 1_000,
    entityType: legacyToken.entityType,
  };

  const caller = await loadCaller(directory, tenant, legacyToken.userId, credentials);
  if (!caller) throw invalidToken('user');

  usage.count(hash);
  return caller;
}

/**
 * Loads a user of the tenant as caller, with the current permissions of the role.
 * @returns undefined when the user is disabled or belongs to another tenant
 */
async function loadCaller(
  directory: Directory,
  tenant: TenantRecord,
  userId: number,
  credentials: Credentials,
): Promise<Caller | undefined> {
  const found = await findActiveUser(directory, tenant.id, userId);
  return found && toCaller(found.user, found.role, credentials);
}

type Credentials = Pick<
  Caller,
  | 'sessionId'
  | 'passwordIsShort'
  | 'program'
  | 'legacyTokenHash'
  | 'tokenId'
  | 'endsAt'
  | 'keyId'
  | 'entityType'
>;

function toCaller(user: UserRecord, role: RoleRecord, credentials: Credentials): Caller {
  return {
    ...credentials,
    userId: user.id,
    userGuid: user.guid,
    firstName: user.firstName,
    lastName: user.lastName,
    role: role.name,
    entityId: user.entityId,
    entitySince: user.entitySince,
    scope: user.scope,
    permissions: role.permissions,
  };
}

/** @throws {Problem} `gone` unless the tenant permits legacy tokens */
function requireLegacyTokens(tenant: TenantRecord): void {
  if (!permitsLegacyTokens(tenant)) {
    throw problem('gone', { detail: 'Legacy tokens have been switched off.' });
  }
}

const deprecatedSince = new Date('2026-11-21T00:00:00Z');
const sunset = new Date('2027-12-31T23:59:59Z');

/**
 * Sets the headers that announce the deprecation of legacy tokens, and their end (RFC 9745, RFC
 * 8594).
 */
function setSunsetHeaders(ctx: HttpContext): void {
  ctx.set({ Deprecation: `@${deprecatedSince.getTime() / 1_000}`, Sunset: sunset.toUTCString() });
}

/**
 * Authenticates an API client by `Authorization: Basic` (RFC 7617), and binds its tenant and
 * its user, as the caller, to the request.
 */
export function authenticateClient(services: AuthServices & ContextServices): HttpMiddleware {
  const { control, directory } = services;
  return async function authenticateApiClient(ctx, next) {
    setSunsetHeaders(ctx);
    const client = await findClient(control, ctx.req.headers.authorization ?? '');
    const tenant = client && (await directory.tenant(client.tenant.guid));
    if (!client || !tenant) throw basicAuthRequired();
    if (tenant.status !== 'active') throw problem('tenant_inactive');

    requireLegacyTokens(tenant);
    bindTenant(ctx, tenant, services);
    const caller = await loadCaller(directory, tenant, client.user.id, {
      sessionId: '',
      tokenId: client.id,
      entityType: null,
    });
    if (!caller) throw basicAuthRequired();

    ctx.state.context.setCaller(caller);
    if (ctx.method === 'HEAD') {
      ctx.status = 200; // a safe method (RFC 9110 §9.2.1) issues no token
    } else {
      await next();
    }
  };
}

/**
 * The same problem for every failure: unknown client, wrong secret, revoked client, disabled
 * user.
 */
export function basicAuthRequired(): Problem {
  return problem('unauthorized', {
    reason: 'client',
    headers: { 'WWW-Authenticate': 'Basic realm="API clients", charset="UTF-8"' },
  });
}

/**
 * The hash that the secret of an unknown client is compared with, so that the check takes the
 * same time.
 */
const unknownHash = createHash('sha256').digest();

async function findClient(
  control: AuthServices['control'],
  authorization: string,
): Promise<ApiClient | undefined> {
  const { id = '', secret = '' } = basicCredentials(authorization) ?? {};
  if (!/^[\w-]{1,100}$/.test(id)) return undefined;

  const client = await control.em
    .fork()
    .findOne(ApiClient, { id, revokedAt: null }, { populate: ['tenant'] });
  const hash = createHash('sha256').update(secret).digest();
  return timingSafeEqual(hash, client?.secretHash ?? unknownHash)
    ? (client ?? undefined)
    : undefined;
}
