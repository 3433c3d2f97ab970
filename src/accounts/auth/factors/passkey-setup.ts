import { z } from 'zod';
import { transactControl } from '../../../control/database.ts';
import { addedBy } from '../../../control/former-builds.ts';
import { problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { AuthServices } from '../auth-services.ts';
import { passkeyChallengeOf } from './challenges.ts';
import {
  afterFirstProof,
  type Completion,
  completeLogin,
  loginRoute,
  notingWrongProof,
  requireChallenge,
  requireOpenAccount,
  setUpLogin,
  setupToken,
} from './complete-login.ts';
import { firstRecoveryCodes, requireRoom } from './factor-store.ts';
import { attestationField, creationOptionsView, passkeyName } from './passkey-fields.ts';
import { insertPasskey } from './passkey-store.ts';
import { checkAttestation, creationOptions, requireRpId } from './passkeys.ts';

const path = '/api/v1/auth/login/setup/passkey';

/** The routes that set up a passkey as the second factor that a role requires. */
export function passkeySetUpRoutes(services: AuthServices): TenantRoute[] {
  return [
    defineRoute({
      ...loginRoute,
      path: `${path}/options`,
      summary: 'Get the options with which your browser makes the passkey that a role requires',
      description: 'For a login that was refused with `second_factor_setup_required`.',
      body: z.object({ setupToken }),
      example: { setupToken: 'the setupToken of the refused login' },
      problems: ['invalid_challenge', 'wrong_state'],
      response: creationOptionsView,
      handler: async ({ body }, context) => {
        const rpId = requireRpId(context);
        const { challenge, owner } = await requireChallenge(services, context, {
          challenge: body.setupToken,
          purpose: 'setup',
          isTried: false,
        });

        return transactControl(services.control, async query => {
          const account = await requireOpenAccount(query, owner, challenge);
          if (account.factors > 0) throw problem('invalid_challenge');
          await requireRoom(query, account.factors, addedBy.passkeys);

          return creationOptions(
            rpId,
            context.tenant,
            account,
            passkeyChallengeOf(body.setupToken),
            [],
          );
        });
      },
    }),

    defineRoute({
      ...loginRoute,
      path,
      summary: 'Add the passkey that a role requires, and complete the login',
      body: z.object({ setupToken, name: passkeyName, passkey: attestationField }),
      example: {
        setupToken: 'the setupToken of the refused login',
        name: 'My laptop',
        passkey: {
          id: 'q83vEjRWeJA',
          response: {
            clientDataJSON: 'eyJ0eXBlIjoid2ViYXV0aG4uY3JlYXRlIn0',
            attestationObject: 'o2Nm',
          },
        },
      },
      problems: ['invalid_challenge', 'invalid_passkey'],
      response: setUpLogin,
      handler: async ({ body: { setupToken: token, name, passkey } }, context) => {
        const { challenge, owner } = await requireChallenge(services, context, {
          challenge: token,
          purpose: 'setup',
          isTried: true,
        });
        const isChallenge = (sent: string) => sent === passkeyChallengeOf(token);

        let recoveryCodes: string[] = [];
        const tokens = await notingWrongProof(
          services,
          context,
          afterFirstProof(challenge),
          async () => {
            const made = await checkAttestation(context.tenant, passkey, isChallenge);
            if (!made) throw problem('invalid_passkey');

            const completion: Completion = {
              method: 'pop',
              prove: async (query, account) => {
                if (account.factors > 0) throw problem('invalid_challenge');
                await requireRoom(query, account.factors, addedBy.passkeys);
                const id = await insertPasskey(query, owner, name, made);
                if (id === undefined) throw problem('invalid_passkey');
                recoveryCodes = await firstRecoveryCodes(query, owner, account.factors);
              },
            };
            return completeLogin(services, context, challenge, owner, completion);
          },
        );
        return { ...tokens, recoveryCodes };
      },
    }),
  ];
}
