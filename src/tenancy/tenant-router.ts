import type { IncomingMessage } from 'node:http';
import type { Directory } from '../control/directory.ts';
import { hashOfLegacyToken, isLegacyToken } from '../control/legacy-token.ts';
import { isProgramKey, programKeyName } from '../control/program-key.ts';
import type { LegacyTokenRecord, ProgramKeyRecord, TenantRecord } from '../control/records.ts';
import {
  bearerToken,
  invalidToken,
  type ParsedToken,
  parseToken,
} from '../lib/http/request/bearer-token.ts';
import { isUuid } from '../lib/http/request/uuid.ts';
import { problem, type UnauthorizedReason } from '../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../lib/request-state.ts';
import { bindTenant } from './bind-request.ts';
import type { FindBySlug } from './limit-slugs.ts';
import type { ContextServices } from './request-context.ts';
import type { VerifiedToken, VerifiedTokens } from './verified-tokens.ts';

/** The token of a request, and the caller that it names: only `verified` has been verified. */
type Credentials = { readonly token: string } & (
  | {
      /** The token as an earlier request verified it: nothing that it depends on has changed. */
      readonly verified: VerifiedToken;
    }
  | {
      /** The parsed header of an access token that is still to be verified. */
      readonly header: ParsedToken['header'];
    }
  | {
      /** The record of the key of a program. */
      readonly programKey: ProgramKeyRecord;
    }
  | {
      /** The record of a legacy token. */
      readonly legacyToken: LegacyTokenRecord;
    }
);

declare module '../lib/request-state.ts' {
  interface RequestState {
    /** Undefined for a request without a token, and on an anonymous route. */
    credentials: Credentials | undefined;
    /** True when X-Tenant names another tenant than that of the token. */
    otherTenantNamed: true | undefined;
  }
}

interface TenantRouterOptions extends ContextServices {
  directory: Directory;
  verifiedTokens: VerifiedTokens;
  findBySlug: FindBySlug;
  /** True for an anonymous route: it ignores a token. */
  anonymous: boolean;
}

/**
 * Resolves the tenant of a request and gives the request its context (`bindTenant`).
 *
 *   access token                   the tenant that the token claims, whatever X-Tenant says.
 *                                  Then the token is verified with the keys of that tenant, so
 *                                  a false claim fails there. Unknown tenant: 401
 *   verified token (cached)        its tenant, if none of its records has changed since
 *   key of a program               the tenant of the key's record in the control database. No
 *                                  record: 401
 *   legacy token                   the tenant of the token's record in the control database. No
 *                                  record: 401
 *   no token, valid X-Tenant       the active tenant with that guid; on an anonymous route also
 *                                  the one with that slug or alias. No slug looks like a guid:
 *                                  it is shorter. How many unknown ones a client may name there
 *                                  is limited (`limitSlugs`): the response tells which names
 *                                  are tenants. Elsewhere a slug is invalid
 *   no token, invalid X-Tenant     403, the same whether it is missing, malformed, unknown or
 *                                  inactive
 *   anonymous route                X-Tenant alone decides; a token is ignored
 */
export function tenantRouter(options: TenantRouterOptions): HttpMiddleware {
  const { anonymous } = options;
  return async function routeToTenant(ctx, next) {
    const token = anonymous ? undefined : requestToken(ctx.req);
    const { tenant, credentials } = await resolve(ctx, token, options);
    ctx.state.credentials = credentials;
    bindTenant(ctx, tenant, options);
    noteOtherTenant(ctx);
    await next();
  };
}

/** The tenant of a request, and what the request shows of its caller. */
interface Resolved {
  readonly tenant: TenantRecord;
  readonly credentials: Credentials | undefined;
}

async function resolve(
  ctx: HttpContext,
  token: string | undefined,
  options: TenantRouterOptions,
): Promise<Resolved> {
  if (token === undefined) {
    return { tenant: await namedTenant(ctx, options), credentials: undefined };
  }

  const { directory, verifiedTokens } = options;
  const verified = verifiedTokens.find(token);
  if (verified) return { tenant: verified.tenant, credentials: { token, verified } };

  if (isProgramKey(token)) {
    const name = programKeyName(token);
    const programKey = name && (await directory.programKey(name));
    if (!programKey) throw invalidToken('program_key');

    const tenant = await tokenTenant(programKey.tenantGuid, directory, 'program_key');
    return { tenant, credentials: { token, programKey } };
  }

  if (isLegacyToken(token)) {
    const hash = hashOfLegacyToken(token);
    const legacyToken = hash && (await directory.legacyToken(hash));
    if (!legacyToken) throw invalidToken('legacy_token');

    const tenant = await tokenTenant(legacyToken.tenantGuid, directory, 'legacy_token');
    return { tenant, credentials: { token, legacyToken } };
  }

  const { header, payload } = parseToken(token);
  const tenant = await tokenTenant(payload.tenant_guid, directory);
  const isKnownKey = typeof header.kid !== 'string' || tenant.keys.has(header.kid);
  // An unknown `kid` may be a key that another process has just created.
  const current = isKnownKey ? undefined : await directory.reloadTenant(tenant.guid);

  return { tenant: current ?? tenant, credentials: { token, header } };
}

/**
 * Returns the bearer token of a request. A legacy token may also be in the header
 * `X-Api-Token`.
 */
export function requestToken(request: IncomingMessage): string | undefined {
  const bearer = bearerToken(request);
  const apiToken = request.headers['x-api-token'];
  return bearer ?? (typeof apiToken === 'string' && isLegacyToken(apiToken) ? apiToken : undefined);
}

async function tokenTenant(
  guid: unknown,
  directory: Directory,
  reason: UnauthorizedReason = 'tenant',
): Promise<TenantRecord> {
  const tenant = isUuid(guid) ? await directory.tenant(guid) : undefined;
  if (!tenant) throw invalidToken(reason);
  return tenant;
}

/** The form of a slug, as the control database checks it. */
const slugPattern = /^[a-z][a-z0-9-]{0,30}[a-z0-9]$/;

async function namedTenant(
  ctx: HttpContext,
  { directory, findBySlug, anonymous }: TenantRouterOptions,
): Promise<TenantRecord> {
  const name = String(ctx.req.headers['x-tenant'] ?? '').toLowerCase();
  const bySlug =
    anonymous && slugPattern.test(name)
      ? findBySlug(ctx, name, () => directory.tenantBySlug(name))
      : undefined;
  const tenant = await (isUuid(name) ? directory.tenant(name) : bySlug);
  if (tenant?.status !== 'active') throw problem('tenant_required');

  return tenant;
}

/**
 * Marks a request whose X-Tenant differs from the tenant of its token: the access log reports
 * it, the response does not.
 */
function noteOtherTenant(ctx: HttpContext): void {
  const named = String(ctx.req.headers['x-tenant'] ?? '').toLowerCase();
  if (!named || !ctx.state.credentials) return;

  const { guid, slug, formerSlugs } = ctx.state.context.tenant;
  const isOwn = named === guid || named === slug || formerSlugs.includes(named);
  if (!isOwn) ctx.state.otherTenantNamed = true;
}
