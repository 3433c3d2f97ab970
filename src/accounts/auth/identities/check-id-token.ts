import type { QueryControl } from '../../../control/database.ts';
import type { IdTokenClaims } from '../../../lib/oidc/id-token.ts';
import { ProviderUnavailableError, TokenRefusedError } from '../../../lib/oidc/provider-error.ts';
import { issuerOfToken } from '../../../lib/oidc/verify-token.ts';
import { type Problem, problem } from '../../../lib/problems.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { findProviderByIssuer, isLoggedOut, type StoredProvider } from './identity-store.ts';

/** An ID token that is good, and was not used yet, and the provider that has issued it. */
export interface CheckedIdToken {
  readonly provider: StoredProvider;
  readonly claims: IdTokenClaims;
}

/** The reasons why an ID token lets nobody in, beside those of the token itself. */
type Refusal =
  | 'no_provider'
  | 'unknown_person'
  | 'held'
  | 'account_inactive'
  | 'used'
  | 'logged_out'
  | 'no_rule'
  | 'email_not_verified'
  | 'other_domain'
  | 'other_claims'
  | 'address_taken'
  | 'rights_grown'
  | 'entity_gone'
  | 'too_many_accounts';

/**
 * Finds the provider of the tenant that has issued an ID token, and checks the token. Its use is
 * recorded later, in the transaction of what it permits (`takeIdToken`).
 * @throws {Problem} `invalid_id_token`, the same for every fault, with the reason in the log;
 *   `unavailable` when the keys of the provider cannot be read
 */
export async function checkIdToken(
  { control, providers, log }: Pick<AuthServices, 'control' | 'providers' | 'log'>,
  context: Pick<RequestContext, 'tenant' | 'origin'>,
  token: string,
): Promise<CheckedIdToken> {
  const { tenant, origin } = context;
  const issuer = issuerOfToken(token);
  const provider = issuer && (await findProviderByIssuer(control, tenant, issuer));
  if (!provider) throw refuseIdToken({ log }, context, 'no_provider');

  try {
    return { provider, claims: await providers.verifyIdToken(token, provider) };
  } catch (error) {
    const { guid } = provider;
    const line = { tenant: tenant.guid, provider: guid, traceId: origin.traceId };

    if (error instanceof TokenRefusedError) {
      log.info(
        { event: 'id_token_refused', reason: error.reason, ...line },
        'refused an ID token of a provider',
      );
      throw invalidIdToken();
    }
    if (error instanceof ProviderUnavailableError) {
      log.warn(
        { event: 'provider_unavailable', reason: error.reason, ...line },
        'a sign-in failed: the metadata or the keys of its provider cannot be read',
      );
      throw problem('unavailable', {
        detail: 'The provider of this sign-in cannot be reached at the moment.',
        cause: error,
      });
    }
    throw error;
  }
}

/** True if the provider has asked for a second factor, as far as it is trusted to say so. */
export function provesFactor({ provider, claims }: CheckedIdToken): boolean {
  const { secondFactor } = provider;

  return secondFactor === null || secondFactor.some(value => claims.amr.includes(value));
}

const lockFactorRule = `
  select second_factor as "secondFactor" from identity_providers where id = $1 for share`;

/**
 * True if a sign-in still counts as a second factor, in the transaction that stores it. A change
 * of `SecondFactor` waits for the transaction, and then finds the session; or was made before.
 */
export async function stillProvesFactor(
  query: QueryControl,
  { provider, claims }: CheckedIdToken,
): Promise<boolean> {
  const [locked] = await query<Pick<StoredProvider, 'secondFactor'>>(
    'lock_factor_rule',
    lockFactorRule,
    [provider.id],
  );

  return locked !== undefined && provesFactor({ provider: { ...provider, ...locked }, claims });
}

/**
 * Logs why an ID token lets nobody in, and returns the problem of it.
 * @param provider undefined when the tenant has none for the token
 */
export function refuseIdToken(
  { log }: Pick<AuthServices, 'log'>,
  { tenant, origin }: Pick<RequestContext, 'tenant' | 'origin'>,
  reason: Refusal,
  provider?: Pick<StoredProvider, 'guid'>,
): Problem {
  const line = { tenant: tenant.guid, provider: provider?.guid, traceId: origin.traceId };
  log.info({ event: 'id_token_refused', reason, ...line }, 'an ID token lets nobody in');

  return invalidIdToken();
}

/**
 * Requires that the person of an ID token, who has no identity here yet, was not logged out at
 * the provider since it was issued. `takeIdentity` knows it of the others.
 * @throws {Problem} `invalid_id_token`
 */
export async function requireLoggedIn(
  query: QueryControl,
  services: Pick<AuthServices, 'log'>,
  context: Pick<RequestContext, 'tenant' | 'origin'>,
  { provider, claims }: CheckedIdToken,
): Promise<void> {
  if (await isLoggedOut(query, provider, claims)) {
    throw refuseIdToken(services, context, 'logged_out', provider);
  }
}

/** The one problem of an ID token that lets nobody in. */
export function invalidIdToken(detail?: string): Problem {
  return problem('invalid_id_token', { reason: 'id_token', ...(detail && { detail }) });
}
