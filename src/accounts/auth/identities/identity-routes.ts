import { z } from 'zod';
import type { QueryControl } from '../../../control/database.ts';
import { readEmail } from '../../../lib/http/request/email.ts';
import { describeFields, longId, timestamp } from '../../../lib/http/request/fields.ts';
import { pathId } from '../../../lib/http/route.ts';
import { fieldProblem, problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { AuthServices } from '../auth-services.ts';
import { changeFactors, ownerOf, ownFactorRoute } from '../factors/change-factors.ts';
import { checkIdToken, refuseIdToken, requireLoggedIn } from './check-id-token.ts';
import { idTokenField } from './id-token-field.ts';
import {
  confirmIdentity,
  type IdentityRow,
  linkIdentity,
  listIdentities,
  takeIdToken,
  unlinkIdentity,
} from './identity-store.ts';

const path = '/api/v1/auth/identities';
const proofNeeded =
  'Needs a proof of who you are of the last five minutes: a login, or `POST /api/v1/auth/verify`.';

const view = describeFields(
  {
    id: longId(),
    provider: z.string(),
    issuer: z.string(),
    email: z.string().nullable(),
    createdAt: timestamp(),
    lastUsedAt: timestamp().nullable(),
    isHeld: z.literal(true).optional(),
  },
  {
    id: 'The number of the identity.',
    provider: 'The name of the provider.',
    issuer: 'The issuer of the provider.',
    email: 'The address that the provider named when it was linked; null if none.',
    createdAt: 'When it was linked.',
    lastUsedAt: 'When it was last used; null if never.',
    isHeld:
      'Only if true: it is refused until you confirm it, because a new password was set by a link ' +
      'since.',
  },
).meta({ title: 'Identity' });

/** The identities of the caller: the accounts at providers, by which the person logs in. */
export function identityRoutes(services: AuthServices): TenantRoute[] {
  const { control, directory, notices } = services;
  const idOf = (id: string | undefined): number => {
    const found = pathId(id, Number.MAX_SAFE_INTEGER);
    if (!found) throw problem('not_found');
    return found;
  };

  return [
    defineRoute({
      ...ownFactorRoute,
      method: 'GET',
      path,
      summary: 'Your identities at providers, the oldest first',
      response: z.array(view),
      handler: async (_input, context) =>
        (await listIdentities(control, ownerOf(context))).map(viewOfIdentity),
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path,
      summary: 'Link an account at a provider, by which you can log in from then on',
      description: proofNeeded,
      body: z.object({ idToken: idTokenField }),
      example: { idToken: 'the ID token that the provider has issued' },
      problems: [
        'invalid_id_token',
        'limit_reached',
        'migration_pending',
        'verification_required',
        'wrong_state',
      ],
      response: view,
      status: 201,
      handler: async ({ body }, context) => {
        const checked = await checkIdToken(services, context, body.idToken);
        const owner = ownerOf(context);
        const { provider, claims } = checked;

        const id = await changeFactors(services, context, async query => {
          if (!(await takeIdToken(query, claims))) {
            throw refuseIdToken(services, context, 'used', provider);
          }
          await requireLoggedIn(query, services, context, checked);
          const linked = await linkIdentity(query, {
            tenantId: owner.tenantId,
            userId: owner.userId,
            providerId: provider.id,
            subject: claims.sub,
            email: readEmail(claims.email ?? '').address ?? null,
          });
          if (linked !== undefined) return linked;
          throw fieldProblem('idToken', 'is of an account that is linked already', 'taken');
        });
        notices.wake();

        const identity = (await listIdentities(control, owner)).find(each => each.id === id);
        if (!identity) throw problem('not_found');
        return viewOfIdentity(identity);
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'POST',
      path: `${path}/:id/confirm`,
      summary: 'Confirm an identity that is held since a new password was set by a link',
      description:
        'Needs a login with the new password, and a second factor if you have one, or ' +
        '`POST /api/v1/auth/verify`, in the last five minutes.',
      problems: ['verification_required', 'wrong_state'],
      handler: async ({ params }, context) => {
        const id = idOf(params.id);
        await changeFactors(services, context, async query => {
          await requirePassword(query, context.caller.sessionId);
          await confirmIdentity(query, ownerOf(context), id);
        });
      },
    }),

    defineRoute({
      ...ownFactorRoute,
      method: 'DELETE',
      path: `${path}/:id`,
      summary: 'Unlink an identity, which ends the sessions that it has opened',
      description: `Refused for your last way to log in. ${proofNeeded}`,
      problems: ['verification_required', 'wrong_state'],
      handler: async ({ params }, context) => {
        const id = idOf(params.id);
        await changeFactors(services, context, query =>
          unlinkIdentity(query, ownerOf(context), id),
        );
        directory.invalidateSession(context.caller.sessionId);
        notices.wake();
      },
    }),
  ];
}

const provedPassword = `
  select from sessions where id = $1::uuid and ('pwd' = any (methods) or verified_at is not null)`;

/**
 * Requires that the person has proved the password in this session: an identity that was linked
 * by somebody else does not confirm another one.
 * @throws {Problem} `verification_required`
 */
async function requirePassword(query: QueryControl, sessionId: string): Promise<void> {
  if ((await query('proved_password', provedPassword, [sessionId])).length > 0) return;

  throw problem('verification_required', {
    detail: 'Send your password to /api/v1/auth/verify, and then this request again.',
  });
}

function viewOfIdentity({ isHeld, createdAt, lastUsedAt, ...identity }: IdentityRow) {
  return {
    ...identity,
    createdAt: new Date(createdAt).toISOString(),
    lastUsedAt: lastUsedAt === null ? null : new Date(lastUsedAt).toISOString(),
    isHeld: isHeld || undefined,
  } as const;
}
