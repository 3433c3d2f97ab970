import { z } from 'zod';
import { transactControl } from '../../../control/database.ts';
import { problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { AuthServices } from '../auth-services.ts';
import { issueTokens, loadTokenHolder, loginResponse } from '../issue-tokens.ts';
import { loginClient } from '../login-client.ts';
import type { RefreshToken } from '../refresh-token.ts';
import { insertSessionOf } from '../sessions.ts';
import { loginRoute, notingWrongProof } from './complete-login.ts';
import { lockAccountOf } from './factor-store.ts';
import { setPerson } from './login-actor.ts';
import { SentChallenge, sealChallenge } from './passkey-challenges.ts';
import { assertionField, requestOptionsView } from './passkey-fields.ts';
import { findPasskey, takeSignature } from './passkey-store.ts';
import { checkAssertion, requestOptions, requireRpId, userHandleOf } from './passkeys.ts';

/** The proofs of a login with a passkey alone, by RFC 8176. */
const passkeyAlone = ['pop', 'user'];

const path = '/api/v1/auth/login/passkey';
/** The routes of a login by a passkey alone, without address and password. */
export function passkeyLoginRoutes(services: AuthServices): TenantRoute[] {
  const { secrets, tokens, control } = services;

  return [
    defineRoute({
      ...loginRoute,
      // They cost nothing, and are the same for everybody: only the limit of all requests counts.
      rateLimit: undefined,
      path: `${path}/options`,
      summary: 'Get the options for a login by a passkey alone',
      description:
        'They are the same for everybody: the authenticator offers the passkeys that it has for ' +
        'the host of the page.',
      problems: ['wrong_state'],
      response: requestOptionsView,
      handler: async (_input, context) => {
        const rpId = requireRpId(context);
        const purpose = { tenantGuid: context.tenant.guid, use: 'login' } as const;

        return requestOptions(rpId, sealChallenge(secrets, purpose, tokens.now()), 'required');
      },
    }),

    defineRoute({
      ...loginRoute,
      path,
      summary: 'Log in with a passkey alone',
      description:
        'For a passkey whose authenticator has recognised its user, by a PIN or a finger. Each ' +
        'signature is good once, within five minutes after its options.',
      body: z.object({ passkey: assertionField }),
      example: {
        passkey: {
          id: 'q83vEjRWeJA',
          response: {
            clientDataJSON: 'eyJ0eXBlIjoid2ViYXV0aG4uZ2V0In0',
            authenticatorData: 'SZYN5Q',
            signature: 'MEUCIQ',
            userHandle: 'EjRWeBI0RniStBI0VniStA',
          },
        },
      },
      problems: ['invalid_passkey'],
      response: loginResponse,
      handler: async ({ body: { passkey } }, context) => {
        const { tenant, origin } = context;
        const found = await findPasskey(control, tenant.id, passkey.id);
        const tried = { userId: found?.userId, proved: [] };

        return notingWrongProof(services, context, tried, async () => {
          if (!found || passkey.response.userHandle !== userHandleOf(found.userGuid)) {
            throw problem('invalid_passkey');
          }

          const purpose = { tenantGuid: tenant.guid, use: 'login' } as const;
          const challenge = new SentChallenge(secrets, purpose, tokens.now());
          const count = await checkAssertion(tenant, passkey, found, challenge.accept, true);
          const holder = await loadTokenHolder(services, context, found.userId);
          if (count === undefined || !holder) throw problem('invalid_passkey');
          if (found.isHeld) throw heldPasskey();

          const client = loginClient(origin);
          const owner = { tenantId: tenant.id, userId: found.userId };
          const token = await transactControl(control, async (query): Promise<RefreshToken> => {
            const account = await lockAccountOf(query, owner);
            await setPerson(query, owner, context, account);
            const isTaken =
              account.mayLogIn &&
              account.mayUsePassword &&
              (await challenge.use(query)) &&
              (await takeSignature(query, found, count, true));
            if (!isTaken) throw problem('invalid_passkey');

            // Nobody knows how long the password is: `POST /api/v1/auth/verify` finds out.
            const proved = { methods: passkeyAlone, passwordIsShort: true };
            return insertSessionOf(query, holder.user, client, proved);
          });

          return issueTokens(services, tenant, holder, token, {
            methods: passkeyAlone,
            idpIsFactor: false,
          });
        });
      },
    }),
  ];
}

/** The problem of a passkey that a new password holds: only who has the passkey gets it. */
function heldPasskey() {
  return problem('invalid_passkey', {
    detail:
      'The password of the account was set by the link of a mail since this passkey was added. Log ' +
      'in with the password, and confirm the passkey, before it is a whole login again.',
  });
}
