import { z } from 'zod';
import { setActor, transactControl } from '../../../control/database.ts';
import { isUuid } from '../../../lib/http/request/uuid.ts';
import { problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { AuthServices } from '../auth-services.ts';
import { addMethod } from '../sessions.ts';
import { requireVerified } from '../verify.ts';
import { changeFactors, ownerOf, ownFactorRoute, proofNeeded } from './change-factors.ts';
import { codeField } from './check-code.ts';
import { confirmedFactor, factorName, factorView, totpView } from './factor-fields.ts';
import { addTotp, confirmTotp, listFactors, lockAccountOf, removeFactor } from './factor-store.ts';
import { passkeyRoutes } from './passkey-routes.ts';
import { makeRecoveryCodes } from './recovery-codes.ts';

const path = '/api/v1/auth/factors';

/** The second factors of the caller. */
export function factorRoutes(services: AuthServices): TenantRoute[] {
  const { control, directory } = services;

  return [
    defineRoute({
      ...ownFactorRoute,
      method: 'GET',
      path,
      summary: 'Your second factors, the oldest first',
      response: z.array(factorView),
      handler: async (_input, context) => {
        const factors = await listFactors(services, ownerOf(context));
        return factors.map(({ confirmedAt, lastUsedAt, heldAt, ...factor }) => ({
          ...factor,
          confirmedAt: new Date(confirmedAt).toISOString(),
          lastUsedAt: lastUsedAt === null ? null : new Date(lastUsedAt).toISOString(),
          heldAt: heldAt === null ? null : new Date(heldAt).toISOString(),
        }));
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path: `${path}/totp`,
      summary: 'Add an authenticator app as second factor',
      description: `Counts for nothing until its first code confirms it, within 15 minutes. ${proofNeeded}`,
      body: z.object({ name: factorName }),
      example: { name: 'My phone' },
      problems: ['limit_reached', 'verification_required', 'wrong_state'],
      response: totpView,
      status: 201,
      handler: async ({ body }, context) => {
        const owner = ownerOf(context);
        const { id, key } = await changeFactors(services, context, (query, account) =>
          addTotp(query, services, owner, account, {
            name: body.name,
            issuer: context.tenant.name,
          }),
        );
        return { id, secret: key.text, url: key.url };
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path: `${path}/:id/confirm`,
      summary: 'Confirm an authenticator app by its first code',
      description:
        'Logins need a second factor from then on. Beside another factor, this needs a proof of the last ' +
        'five minutes, too.',
      body: z.object({ code: codeField() }),
      example: { code: '123456' },
      problems: ['invalid_code', 'verification_required', 'wrong_state'],
      response: confirmedFactor,
      handler: async ({ body, params: { id = '' } }, context) => {
        const { caller } = context;
        const owner = ownerOf(context);
        if (!isUuid(id.toLowerCase())) throw problem('invalid_code');

        const recoveryCodes = await transactControl(control, async query => {
          const account = await lockAccountOf(query, owner);
          // Somebody with the password alone may have begun this before there was a factor.
          if (account.factors > 0) await requireVerified(query, caller);
          await setActor(query, context.actor);
          const factor = { id: id.toLowerCase(), code: body.code };
          const codes = await confirmTotp(query, services, owner, account, factor);
          await addMethod(query, caller.sessionId, 'otp');

          return codes;
        });
        directory.invalidateSession(caller.sessionId);
        return { recoveryCodes };
      },
    }),

    ...passkeyRoutes(services),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path: `${path}/recovery-codes`,
      summary: 'Make new recovery codes, in place of the former ones',
      description: proofNeeded,
      problems: ['verification_required', 'wrong_state'],
      response: confirmedFactor,
      handler: async (_input, context) => {
        const { tenantId, userId } = ownerOf(context);
        const recoveryCodes = await changeFactors(services, context, (query, { factors }) => {
          if (factors === 0) {
            throw problem('wrong_state', { detail: 'You have no second factor.' });
          }
          return makeRecoveryCodes(query, tenantId, userId);
        });
        return { recoveryCodes };
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'DELETE',
      path: `${path}/:id`,
      summary: 'Remove one of your second factors',
      description: `With the last one, your recovery codes end. ${proofNeeded}`,
      problems: ['verification_required', 'wrong_state'],
      handler: async ({ params: { id = '' } }, context) => {
        if (!isUuid(id.toLowerCase())) throw problem('not_found');
        await changeFactors(services, context, (query, account) =>
          removeFactor(
            query,
            ownerOf(context),
            account,
            id.toLowerCase(),
            context.caller.sessionId,
          ),
        );
      },
    }),
  ];
}
