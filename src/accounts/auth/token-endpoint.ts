import { programKeyName } from '../../control/program-key.ts';
import { accessTokenLifetimeSeconds } from '../../control/token-lifetime.ts';
import { basicCredentials } from '../../lib/http/request/basic-credentials.ts';
import { readForm } from '../../lib/http/request/read-form.ts';
import { problem, type UnauthorizedReason } from '../../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../../lib/request-state.ts';
import { bindTenant } from '../../tenancy/bind-request.ts';
import type { ContextServices } from '../../tenancy/request-context.ts';
import { signAccessToken } from './access-token.ts';
import type { AuthServices } from './auth-services.ts';
import { entityTypeOf } from './issue-tokens.ts';
import { findKeyHolder, type KeyHolder } from './key-holder.ts';

export const tokenPath = '/api/v1/auth/token';

/** The errors of RFC 6749 §5.2 that the endpoint returns. */
type OAuthError = 'invalid_request' | 'invalid_client' | 'unsupported_grant_type';

interface TokenEndpointOptions extends ContextServices {
  directory: AuthServices['directory'];
  tokens: AuthServices['tokens'];
  keyUses: AuthServices['keyUses'];
  /** Limits the requests of a client address for one program, before anything is looked up. */
  limit: (ctx: HttpContext, program: string, next: () => Promise<void>) => Promise<void>;
}

/** The credentials of a program: its guid, and one of its keys. */
interface Credentials {
  readonly id: string;
  readonly secret: string;
}

/**
 * Exchanges the key of a program for an access token, for tools that speak OAuth only: the token
 * endpoint of RFC 6749 for the grant `client_credentials` (§4.4). The guid of the program is
 * `client_id`, a key is `client_secret`, in the header `Authorization` or in the form (§2.3.1).
 *
 * The token is valid for 15 minutes and ends with the key: it names the key, and no row is
 * stored. There is no refresh token. The request needs no `X-Tenant`: the tenant is that of the
 * key. Errors have the form of §5.2, and one body for an unknown, wrong, ended or revoked key, a
 * disabled program, another network, and a tenant that is isolated or not active; the log has
 * the reason. Faults of HTTP and limits are problems, as everywhere.
 */
export function tokenEndpoint(options: TokenEndpointOptions): HttpMiddleware {
  return async function issueProgramToken(ctx, next) {
    if (ctx.path !== tokenPath) return next();
    ctx.state.route = tokenPath;
    if (ctx.method !== 'POST') throw problem('method_not_allowed', { headers: { Allow: 'POST' } });

    const form = await readForm(ctx);
    const credentials = readCredentials(ctx.req.headers.authorization, form);
    const program = typeof credentials === 'string' ? '' : credentials.id.toLowerCase();
    await options.limit(ctx, program, async () => {
      if (typeof credentials === 'string') return refuse(ctx, credentials);
      const fault = grantFault(form);
      if (fault) return refuse(ctx, fault);

      const holder = await findHolder(ctx, credentials, options);
      if (typeof holder === 'string') return refuse(ctx, 'invalid_client', holder);
      await issue(ctx, holder, options);
    });
  };
}

/** Returns a field of a form; undefined if it occurs not at all, or is empty. */
function field(form: URLSearchParams, name: string): string | undefined {
  return form.get(name) || undefined;
}

/** A parameter must not be included more than once (§3.2). */
function hasRepeated(form: URLSearchParams): boolean {
  return ['grant_type', 'client_id', 'client_secret', 'scope'].some(
    name => form.getAll(name).length > 1,
  );
}

function grantFault(form: URLSearchParams): OAuthError | undefined {
  const grantType = field(form, 'grant_type');
  if (grantType === undefined) return 'invalid_request';
  return grantType === 'client_credentials' ? undefined : 'unsupported_grant_type';
}

/** Returns the credentials of a request, or the error of one that has none, or two. */
function readCredentials(
  authorization: string | undefined,
  form: URLSearchParams,
): Credentials | OAuthError {
  if (hasRepeated(form)) return 'invalid_request';

  const [id, secret] = [field(form, 'client_id'), field(form, 'client_secret')];
  if (authorization === undefined) {
    return id !== undefined && secret !== undefined ? { id, secret } : 'invalid_client';
  }

  const basic = readBasic(authorization);
  if (!basic) return 'invalid_client';
  const isOther = id !== undefined && id !== basic.id;
  return secret !== undefined || isOther ? 'invalid_request' : basic;
}

/** Reads `client_secret_basic`: both parts are encoded as in a form before they are joined. */
function readBasic(authorization: string): Credentials | undefined {
  const encoded = basicCredentials(authorization);
  if (!encoded) return undefined;

  const decode = (text: string): string => decodeURIComponent(text.replaceAll('+', ' '));
  try {
    const { id, secret } = { id: decode(encoded.id), secret: decode(encoded.secret) };
    return id && secret ? { id, secret } : undefined;
  } catch {
    return undefined; // it is not encoded as in a form
  }
}

/** @returns the reason why the key would be refused as bearer token, or is not the program's */
async function findHolder(
  ctx: HttpContext,
  { id, secret }: Credentials,
  options: TokenEndpointOptions,
): Promise<KeyHolder | UnauthorizedReason> {
  const { directory } = options;
  const name = programKeyName(secret);
  const key = name && (await directory.programKey(name));
  if (!key) return 'program_key';

  const tenant = await directory.tenant(key.tenantGuid);
  if (!tenant) return 'tenant';

  const holder = await findKeyHolder(key, tenant, ctx.state.ipAddress, options);
  const isOther = typeof holder !== 'string' && holder.user.guid !== id.toLowerCase();
  return isOther ? 'user' : holder;
}

async function issue(
  ctx: HttpContext,
  { tenant, key, user, role }: KeyHolder,
  options: TokenEndpointOptions,
): Promise<void> {
  const { tokens, keyUses } = options;
  bindTenant(ctx, tenant, options);
  const permissions = [...role.permissions];
  const claims = {
    user_guid: user.guid,
    client_id: user.guid,
    permissions,
    entity_type: await entityTypeOf(user, ctx.state.context),
    sid: key.id,
  };

  keyUses.note(key.id);
  respond(ctx, 200, {
    access_token: signAccessToken(tenant, claims, tokens),
    token_type: 'Bearer',
    expires_in: Math.min(
      accessTokenLifetimeSeconds,
      Math.floor(key.expiresAt / 1_000 - tokens.now()),
    ),
    scope: permissions.join(' '),
  });
}

/**
 * Responds with an error of §5.2.
 * @param reason for the log
 */
function refuse(ctx: HttpContext, error: OAuthError, reason: UnauthorizedReason = 'client'): void {
  if (error !== 'invalid_client') {
    respond(ctx, 400, { error });
    return;
  }

  ctx.state.reason = reason;
  ctx.set('WWW-Authenticate', 'Basic realm="programs", charset="UTF-8"');
  respond(ctx, 401, { error });
}

function respond(ctx: HttpContext, status: number, body: object): void {
  ctx.status = status;
  ctx.set({ 'Cache-Control': 'no-store', 'Content-Type': 'application/json; charset=utf-8' });
  ctx.body = JSON.stringify(body);
}
