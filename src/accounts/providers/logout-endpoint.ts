import { type QueryControl, queryControl, transactControl } from '../../control/database.ts';
import { readForm } from '../../lib/http/request/read-form.ts';
import type { LogoutTokenClaims } from '../../lib/oidc/logout-token.ts';
import type { Provider } from '../../lib/oidc/provider.ts';
import { ProviderUnavailableError, TokenRefusedError } from '../../lib/oidc/provider-error.ts';
import { problem } from '../../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../../lib/request-state.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { rememberLogout, takeIdToken } from '../auth/identities/identity-store.ts';

/** The path of the endpoint, with the guid of a provider in place of its parameter. */
const logoutRoute = '/api/v1/auth/logout/:provider';
const logoutPath = /^\/api\/v1\/auth\/logout\/([\dA-Fa-f]{8}-(?:[\dA-Fa-f]{4}-){3}[\dA-Fa-f]{12})$/;

type LogoutServices = Pick<AuthServices, 'control' | 'providers' | 'log'>;

/**
 * Ends the sessions of a person who has signed out at a provider, or was shut out there (OpenID
 * Connect Back-Channel Logout 1.0 §2.5). The provider sends a logout token, which it has signed,
 * in a form; the path names its configuration, and with it the tenant. Every process refuses
 * the sessions within the time of a revocation.
 *
 * Errors have the form of §2.8, and one body for a provider that is unknown or disabled, and a
 * token that is refused; the log has the reason. Faults of HTTP, and a provider whose keys
 * cannot be had, are problems, as everywhere.
 */
export function logoutEndpoint(services: LogoutServices): HttpMiddleware {
  return async function endSessionsOfPerson(ctx, next) {
    const [, guid] = logoutPath.exec(ctx.path) ?? [];
    if (guid === undefined) return next();
    ctx.state.route = logoutRoute;
    if (ctx.method !== 'POST') throw problem('method_not_allowed', { headers: { Allow: 'POST' } });

    const form = await readForm(ctx);
    const tokens = form.getAll('logout_token');
    const provider = await findProvider(services, guid);
    const claims =
      provider && tokens.length === 1
        ? await readClaims(services, ctx, provider, tokens[0] ?? '')
        : undefined;
    const isEnded = provider && claims && (await endSessions(services, ctx, provider, claims));

    ctx.set('Cache-Control', 'no-store');
    ctx.status = isEnded ? 200 : 400;
    ctx.body = isEnded ? '' : { error: 'invalid_request' };
  };
}

/** A provider that is enabled. */
interface StoredProvider extends Provider {
  readonly id: number;
}

const providerByGuid = `
  select p.id::float8 as id, p.guid, t.guid as "tenantGuid", p.issuer, p.client_ids as "clientIds"
    from identity_providers p join tenants t on t.id = p.tenant_id
   where p.guid = $1::uuid and p.is_enabled`;

async function findProvider(
  { control }: LogoutServices,
  guid: string,
): Promise<StoredProvider | undefined> {
  const [provider] = await queryControl<StoredProvider>(
    control,
    'logout_provider',
    providerByGuid,
    [guid],
  );
  return provider;
}

/**
 * Returns what a logout token says; undefined for one that is refused.
 * @throws {Problem} `unavailable` when the keys of the provider cannot be had
 */
async function readClaims(
  services: LogoutServices,
  ctx: HttpContext,
  provider: Provider,
  token: string,
): Promise<LogoutTokenClaims | undefined> {
  try {
    return await services.providers.verifyLogoutToken(token, provider);
  } catch (error) {
    if (error instanceof TokenRefusedError) {
      logRefusal(services, ctx, provider, error.reason);
      return undefined;
    }
    if (error instanceof ProviderUnavailableError) {
      logRefusal(services, ctx, provider, error.reason);
      throw problem('unavailable', { cause: error });
    }
    throw error;
  }
}

function logRefusal(
  { log }: LogoutServices,
  ctx: HttpContext,
  { guid, tenantGuid }: Provider,
  reason: string,
): void {
  log.warn(
    {
      event: 'logout_token_refused',
      tenant: tenantGuid,
      provider: guid,
      reason,
      traceId: ctx.state.traceId,
    },
    'a logout token of a provider is refused: no session has ended',
  );
}

/** The sessions, and the logins that wait for a second factor, of identities of a provider. */
const ofSubject = `
  identity_id in (select id from identities where provider_id = $1 and subject = $2)
  and ($3::text is null or provider_sid is null or provider_sid = $3)`;
const ofSession = `
  provider_sid = $3 and $2::text is null
  and identity_id in (select i.id from identities i where i.id = identity_id and i.provider_id = $1)`;

/**
 * SQL of the identities whose sign-ins of before are refused. Of a token without `sub`, those by
 * which its session has opened one here.
 */
const identitiesOfLogout = `
  provider_id = $1 and case when $2::text is not null then subject = $2
    else id in (select identity_id from sessions where provider_sid = $3) end`;

/**
 * The statements of a logout, in the order in which a login takes the same locks: a login that
 * has begun either ends before the last one, which revokes its session, or finds the second one.
 * The first one is sent after that again: a login for which the second one has waited may have
 * left a challenge.
 * @param which SQL of what the token names
 */
const logout = (which: string) => ({
  challenges: `delete from login_challenges where ${which}`,
  identities: `
    update identities set logged_out_at = greatest(logged_out_at, to_timestamp($4::float8))
     where ${identitiesOfLogout}`,
  sessions: `
    update sessions set revoked_at = now(), revoked_reason = 'provider_logout'
     where revoked_at is null and ${which} returning id`,
});
const logoutOfSubject = logout(ofSubject);
const logoutOfSession = logout(ofSession);

/**
 * Ends the sessions that a logout token names: those of a person, or those of one session at the
 * provider. A session of the person whose session at the provider is not known ends in both
 * cases.
 * @returns false for a token that was used before
 */
async function endSessions(
  services: LogoutServices,
  ctx: HttpContext,
  provider: StoredProvider,
  claims: LogoutTokenClaims,
): Promise<boolean> {
  const { sub = null, sid = null, issuedAt } = claims;
  const values = [provider.id, sub, sid];

  const isTaken = await transactControl(services.control, async (query: QueryControl) => {
    if (!(await takeIdToken(query, claims))) return false;

    const [name, ended] =
      sub === null
        ? (['session', logoutOfSession] as const)
        : (['subject', logoutOfSubject] as const);
    if (sub !== null) await rememberLogout(query, provider, { sub, issuedAt });
    await query(`logout_${name}_challenges`, ended.challenges, values);
    await query(`logout_${name}_identities`, ended.identities, [...values, issuedAt]);
    await query(`logout_${name}_challenges`, ended.challenges, values);
    await query(`logout_${name}_sessions`, ended.sessions, values);
    return true;
  });
  if (!isTaken) logRefusal(services, ctx, provider, 'used');

  return isTaken;
}
