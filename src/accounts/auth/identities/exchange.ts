import { z } from 'zod';
import { queryControl, transactControl } from '../../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../../control/former-builds.ts';
import { bodyLimits } from '../../../lib/http/route.ts';
import { hasCode, problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { createChallenge } from '../factors/challenges.ts';
import type { CodeOwner } from '../factors/check-code.ts';
import { wantedProof } from '../factors/factor-proof.ts';
import { lockAccountOf } from '../factors/factor-store.ts';
import { setPerson } from '../factors/login-actor.ts';
import { issueTokens, loadTokenHolder, loginResponse, type TokenHolder } from '../issue-tokens.ts';
import { setupRequired } from '../login.ts';
import { type LoginClient, loginClient } from '../login-client.ts';
import { isKnownNetwork } from '../login-networks.ts';
import { type ProvedIdentity, takeIdentity } from '../proved-identity.ts';
import type { RefreshToken } from '../refresh-token.ts';
import { insertSessionOf } from '../sessions.ts';
import {
  type CheckedIdToken,
  checkIdToken,
  provesFactor,
  refuseIdToken,
  requireLoggedIn,
  stillProvesFactor,
} from './check-id-token.ts';
import { createAccount } from './create-account.ts';
import { idTokenField } from './id-token-field.ts';
import { type FoundIdentity, findIdentity, takeIdToken } from './identity-store.ts';

/** The proof of a login by a provider. */
const byProvider: readonly string[] = ['idp'];

const enabledProviders = `
  select name, issuer, client_ids as "clientIds" from identity_providers
   where tenant_id = $1 and is_enabled order by name, id`;
const providerOfLogin = z
  .object({
    name: z.string().describe('Its name, for the button.'),
    issuer: z.string().describe('The address under which a library finds its metadata.'),
    clientIds: z.array(z.string()).describe('The client ids that a sign-in may be for.'),
  })
  .meta({ title: 'ProviderOfLogin' });

/** The routes of a login by a provider. */
export function exchangeRoutes(services: AuthServices): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/api/v1/auth/providers',
      access: 'anonymous',
      tag: 'Authentication',
      summary: 'The providers at which people of the tenant sign in, for a page of login',
      response: z.array(providerOfLogin),
      handler: async (_input, { tenant }) =>
        queryControl<z.output<typeof providerOfLogin>>(
          services.control,
          'enabled_providers',
          enabledProviders,
          [tenant.id],
        ),
    }),

    defineRoute({
      method: 'POST',
      path: '/api/v1/auth/exchange',
      access: 'anonymous',
      tag: 'Authentication',
      summary: 'Log in with the ID token of a provider',
      description:
        'For a page that has signed the person in at a provider of `GET /api/v1/auth/providers`, ' +
        'with PKCE and a nonce. A person with a second factor here gets 401 ' +
        '`second_factor_required`, as after a password, unless the provider has asked for one. The ' +
        'session ends after the hours that the provider has, also one that is in use.',
      body: z.object({ idToken: idTokenField }),
      example: { idToken: 'the ID token that the provider has issued' },
      bodyLimit: bodyLimits.auth,
      rateLimit: 'login',
      problems: [
        'invalid_id_token',
        'second_factor_required',
        'second_factor_setup_required',
        'migration_pending',
      ],
      response: loginResponse,
      handler: async ({ body: { idToken } }, context) => {
        const checked = await checkIdToken(services, context, idToken);
        const login = await findLogin(services, context, checked);
        const opening = await openSession(services, context, login, checked);
        if (opening.outcome === 'opened') {
          const proofs = { methods: byProvider, idpIsFactor: opening.isFactor };
          return issueTokens(services, context.tenant, login.holder, opening.token, proofs);
        }
        if (opening.outcome === 'setup') throw setupRequired(opening.setupToken);

        const members = await wantedProof(services, context, login.owner, opening.challenge);
        throw problem('second_factor_required', { members });
      },
    }),
  ];
}

/** The person who logs in by an identity. */
interface IdentityLogin {
  readonly identity: Pick<FoundIdentity, 'id'>;
  readonly owner: CodeOwner;
  readonly holder: TokenHolder;
  readonly client: LoginClient;
  /** True if the account was made for this login. */
  readonly isNew: boolean;
}

/**
 * Finds the person of an ID token, or makes the account.
 * @throws {Problem} `invalid_id_token`, the same for everybody who is unknown, disabled or whose
 *   identity is held
 */
async function findLogin(
  services: AuthServices,
  context: RequestContext,
  checked: CheckedIdToken,
): Promise<IdentityLogin> {
  const { control, failedLogins } = services;
  const { tenant, origin } = context;
  const { provider, claims } = checked;
  const client = loginClient(origin);
  const find = () => findIdentity(control, tenant.id, provider.id, claims.sub);
  const note = (userId: number | undefined, reason: 'identity_held' | 'account_inactive') =>
    failedLogins.note({ tenantId: tenant.id, userId, reason, methods: byProvider, client });

  const known = await find();
  if (!known) {
    try {
      await createAccount(services, context, checked);
    } catch (error) {
      if (hasCode(error, 'invalid_id_token')) note(undefined, 'account_inactive');
      throw error;
    }
  }
  const identity = known ?? (await find());
  const holder = identity && (await loadTokenHolder(services, context, identity.userId));
  if (identity && holder && !identity.isHeld) {
    const { userId } = identity;
    const owner = { tenantId: tenant.id, tenantGuid: tenant.guid, userId };

    return { identity, owner, holder, client, isNew: !known };
  }

  note(identity?.userId, holder ? 'identity_held' : 'account_inactive');
  throw refuseIdToken(services, context, holder ? 'held' : 'account_inactive', provider);
}

type Opening =
  | { readonly outcome: 'opened'; readonly token: RefreshToken; readonly isFactor: boolean }
  | { readonly outcome: 'second_factor'; readonly challenge: string }
  | { readonly outcome: 'setup'; readonly setupToken: string | undefined };

/**
 * Opens the session of an ID token, and uses the token. A person with a second factor gets a
 * challenge in place of the session, and one whose role requires a factor, and who has none, a
 * token that sets one up, unless the provider has asked for one.
 * @throws {Problem} `invalid_id_token`: nothing has changed then
 */
async function openSession(
  services: AuthServices,
  context: RequestContext,
  { identity, owner, holder, client, isNew }: IdentityLogin,
  checked: CheckedIdToken,
): Promise<Opening> {
  const { provider, claims } = checked;

  return transactControl(services.control, async (query): Promise<Opening> => {
    await requireNoFormerBuild(query, addedBy.identityProviders);
    const account = await lockAccountOf(query, owner);
    if (!account.mayLogIn) throw refuseIdToken(services, context, 'account_inactive', provider);

    await setPerson(query, owner, context, account);
    if (!(await takeIdentity(query, identity.id, owner, claims.issuedAt))) {
      throw refuseIdToken(services, context, 'held', provider);
    }
    if (!(await takeIdToken(query, claims))) {
      throw refuseIdToken(services, context, 'used', provider);
    }
    // A logout did not find the identity while the account was being made.
    if (isNew) await requireLoggedIn(query, services, context, checked);

    const proved: ProvedIdentity = {
      id: identity.id,
      providerSid: claims.sid ?? null,
      isFactor: provesFactor(checked) && (await stillProvesFactor(query, checked)),
    };
    // Of a login without the password nobody knows how long it is.
    const { hasPassword: passwordIsShort } = account;
    const createFor = (purpose: 'verify' | 'setup') =>
      createChallenge(query, owner.userId, purpose, passwordIsShort, proved);

    if (!proved.isFactor && account.factors > 0) {
      return { outcome: 'second_factor', challenge: await createFor('verify') };
    }
    if (!proved.isFactor && account.mustHaveFactor) {
      const isKnown = isNew || (await isKnownNetwork(query, holder.user.id, client.network));
      return { outcome: 'setup', setupToken: isKnown ? await createFor('setup') : undefined };
    }

    const login = { methods: byProvider, passwordIsShort, identity: proved };
    const token = await insertSessionOf(query, holder.user, client, login);
    return { outcome: 'opened', token, isFactor: proved.isFactor };
  });
}
