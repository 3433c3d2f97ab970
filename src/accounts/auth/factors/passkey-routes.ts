import { z } from 'zod';
import { addedBy } from '../../../control/former-builds.ts';
import { guid } from '../../../lib/http/request/fields.ts';
import { isUuid } from '../../../lib/http/request/uuid.ts';
import { problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { addMethod } from '../sessions.ts';
import { changeFactors, ownerOf, ownFactorRoute, proofNeeded } from './change-factors.ts';
import { confirmedFactor } from './factor-fields.ts';
import { firstRecoveryCodes, requireRoom } from './factor-store.ts';
import { type ChallengePurpose, SentChallenge, sealChallenge } from './passkey-challenges.ts';
import { attestationField, creationOptionsView, passkeyName } from './passkey-fields.ts';
import { confirmHeld, insertPasskey, listPasskeys } from './passkey-store.ts';
import { checkAttestation, creationOptions, requireRpId } from './passkeys.ts';

const path = '/api/v1/auth/factors/passkeys';

/** The result of a new passkey. */
const addedPasskey = z
  .object({ id: guid().describe('The id of the factor, for `DELETE`.') })
  .extend(confirmedFactor.shape)
  .meta({ title: 'AddedPasskey' });

/** The routes by which the caller adds a passkey. */
export function passkeyRoutes(services: AuthServices): TenantRoute[] {
  const { control, directory, secrets, tokens } = services;

  return [
    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path: `${path}/options`,
      summary: 'Get the options with which your browser makes a passkey',
      description:
        'The passkey works on pages of the host of `Origin`, if it is one of the pages of the ' +
        `tenant, else on those of the tenant's first page. ${proofNeeded}`,
      problems: ['limit_reached', 'verification_required', 'wrong_state'],
      response: creationOptionsView,
      handler: async (_input, context) => {
        const { tenant } = context;
        const rpId = requireRpId(context);
        const known = await listPasskeys(control, ownerOf(context));

        return changeFactors(services, context, async (query, { guid, email, factors }) => {
          await requireRoom(query, factors, addedBy.passkeys);
          const challenge = sealChallenge(secrets, purposeOf(context), tokens.now());
          const ofHost = known.filter(passkey => passkey.rpId === rpId);

          return creationOptions(rpId, tenant, { guid, email }, challenge, ofHost);
        });
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path,
      summary: 'Add a passkey as second factor',
      description: `Logins need a second factor from then on. ${proofNeeded}`,
      body: z.object({ name: passkeyName, passkey: attestationField }),
      example: {
        name: 'My laptop',
        passkey: {
          id: 'q83vEjRWeJA',
          response: {
            clientDataJSON: 'eyJ0eXBlIjoid2ViYXV0aG4uY3JlYXRlIn0',
            attestationObject: 'o2Nm',
          },
        },
      },
      problems: ['invalid_passkey', 'limit_reached', 'verification_required', 'wrong_state'],
      response: addedPasskey,
      status: 201,
      handler: async ({ body: { name, passkey } }, context) => {
        const { caller, tenant } = context;
        const challenge = new SentChallenge(secrets, purposeOf(context), tokens.now());
        const made = await checkAttestation(tenant, passkey, challenge.accept);
        if (!made) throw problem('invalid_passkey');

        const added = await changeFactors(services, context, async (query, { factors }) => {
          await requireRoom(query, factors, addedBy.passkeys);
          if (!(await challenge.use(query))) throw problem('invalid_passkey');
          const id = await insertPasskey(query, ownerOf(context), name, made);
          if (id === undefined) throw problem('invalid_passkey');

          await addMethod(query, caller.sessionId, 'pop');
          const recoveryCodes = await firstRecoveryCodes(query, ownerOf(context), factors);
          return { id, recoveryCodes };
        });
        directory.invalidateSession(caller.sessionId);
        return added;
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path: `${path}/:id/confirm`,
      summary: 'Confirm a passkey that a new password holds',
      description:
        'A password that is set by the link of a mail holds the passkeys of the last 30 days: until ' +
        'you have confirmed one, it completes logins with the password, and is no whole login. ' +
        `${proofNeeded} The proof has to be the password, also of who has logged in by a passkey alone.`,
      problems: ['verification_required', 'wrong_state'],
      handler: async ({ params: { id = '' } }, context) => {
        if (!isUuid(id.toLowerCase())) throw problem('not_found');
        const { sessionId } = context.caller;
        await changeFactors(services, context, query =>
          confirmHeld(query, ownerOf(context), id.toLowerCase(), sessionId),
        );
      },
    }),
  ];
}

/** The purpose of a challenge that adds a passkey: by the session that asked for it, alone. */
function purposeOf({ tenant, caller }: RequestContext): ChallengePurpose {
  return { tenantGuid: tenant.guid, use: { sessionId: caller.sessionId } };
}
