import { z } from 'zod';
import { type QueryControl, setActor, transactControl } from '../../../control/database.ts';
import { isUuid } from '../../../lib/http/request/uuid.ts';
import { bodyLimits } from '../../../lib/http/route.ts';
import { problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { addMethod } from '../sessions.ts';
import { requireVerified } from '../verify.ts';
import { type CodeOwner, codeField } from './check-code.ts';
import { confirmedFactor, factorName, factorView, totpView } from './factor-fields.ts';
import {
  addTotp,
  confirmTotp,
  type LockedAccount,
  listFactors,
  lockAccountOf,
  onlyPeople,
  removeFactor,
} from './factor-store.ts';
import { makeRecoveryCodes } from './recovery-codes.ts';

const path = '/api/v1/auth/factors';
const common = { access: 'user', tag: 'Authentication', bodyLimit: bodyLimits.auth } as const;
const proof =
  'Needs a proof of your password of the last five minutes, and of your second factor if you ' +
  'have one: a login, or `POST /api/v1/auth/verify`.';

/** The second factors of the caller. */
export function factorRoutes(services: AuthServices): TenantRoute[] {
  const { control, directory } = services;

  return [
    defineRoute({
      ...common,
      method: 'GET',
      path,
      summary: 'Your second factors, the oldest first',
      response: z.array(factorView),
      handler: async (_input, context) => {
        const factors = await listFactors(services, ownerOf(context));
        return factors.map(({ confirmedAt, lastUsedAt, ...factor }) => ({
          ...factor,
          confirmedAt: new Date(confirmedAt).toISOString(),
          lastUsedAt: lastUsedAt === null ? null : new Date(lastUsedAt).toISOString(),
        }));
      },
    }),

    defineRoute({
      ...common,
      method: 'POST',
      path: `${path}/totp`,
      summary: 'Add an authenticator app as second factor',
      description: `Counts for nothing until its first code confirms it, within 15 minutes. ${proof}`,
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
      ...common,
      method: 'POST',
      path: `${path}/:id/confirm`,
      summary: 'Confirm an authenticator app by its first code',
      description: 'Logins need a second factor from then on.',
      body: z.object({ code: codeField() }),
      example: { code: '123456' },
      problems: ['invalid_code', 'wrong_state'],
      response: confirmedFactor,
      handler: async ({ body, params: { id = '' } }, context) => {
        const { caller } = context;
        const owner = ownerOf(context);
        if (!isUuid(id.toLowerCase())) throw problem('invalid_code');

        const recoveryCodes = await transactControl(control, async query => {
          const account = await lockAccountOf(query, owner);
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

    defineRoute({
      ...common,
      method: 'POST',
      path: `${path}/recovery-codes`,
      summary: 'Make new recovery codes, in place of the former ones',
      description: proof,
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
      ...common,
      method: 'DELETE',
      path: `${path}/:id`,
      summary: 'Remove one of your second factors',
      description: `With the last one, your recovery codes end. ${proof}`,
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

function ownerOf({ caller, tenant }: RequestContext): CodeOwner {
  return { tenantId: tenant.id, tenantGuid: tenant.guid, userId: caller.userId };
}

/**
 * Changes the factors of the caller, who has proved to be the person, in one transaction.
 * @throws {Problem} `verification_required`; `wrong_state` for a program or a legacy client
 */
async function changeFactors<Result>(
  { control }: AuthServices,
  context: RequestContext,
  change: (query: QueryControl, account: LockedAccount) => Promise<Result>,
): Promise<Result> {
  const { caller, actor } = context;
  if (!caller.sessionId) throw onlyPeople();

  return transactControl(control, async query => {
    const account = await lockAccountOf(query, ownerOf(context));
    await requireVerified(query, caller);
    await setActor(query, actor);

    return change(query, account);
  });
}
