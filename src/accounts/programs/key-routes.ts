import { z } from 'zod';
import { queryStatement } from '../../control/database.ts';
import { keyDays } from '../../control/key-lifetime.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { intCount, longId, moment } from '../../lib/http/request/fields.ts';
import { isUuid } from '../../lib/http/request/uuid.ts';
import { nothing, type Statement } from '../../lib/postgres/statement.ts';
import { fieldProblem, problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { requireVerified } from '../auth/verify.ts';
import { findManagedUser, managedId } from '../people/change-managed-user.ts';
import { changePeople, type PeopleTransaction } from '../people/change-people.ts';
import { viewOf } from '../people/user-statements.ts';
import { makeKey, openMadeKey, revokeKey, revokeKeysMadeBy } from './program-keys.ts';
import { managedPrograms } from './program-records.ts';
import { findVisibleProgram } from './program-routes.ts';
import {
  type KeyView,
  keyConditions,
  keyExpiryDescription,
  keyTable,
  keyView,
} from './program-table.ts';

/** The field of a key that its use changes. */
const volatileKeyFields = ['LastUsedAt'];

const dayMs = 24 * 3_600_000;

const { documentation: programDocumentation, path: programsPath } = managedPrograms;
const path = `${programsPath}/:id/keys`;
const made = keyView.extend({
  Key: z
    .string()
    .describe('The key. Send it as `Authorization: Bearer …`. No other response has it.'),
});

/** The keys of programs, for the administrators of a tenant. */
export function keyRoutes(services: AuthServices): TenantRoute[] {
  return [
    defineRoute({
      ...programDocumentation,
      method: 'GET',
      path,
      access: 'users.read',
      summary: 'The keys of one Program, without the keys themselves, the newest first',
      response: z.array(keyView),
      handler: async ({ params }, context) => {
        const program = await findVisibleProgram(services, context, managedId(params));
        if (!program) throw problem('not_found');

        const reads = controlReads(services.control, context);
        const conditions = keyConditions(context.tenant.id, program.Id);
        return readList(
          undefined,
          { table: keyTable, conditions, reads },
          { orderBy: { createdAt: 'desc', id: 'asc' } },
        );
      },
    }),

    defineRoute({
      ...programDocumentation,
      method: 'GET',
      path: `${path}/:keyId`,
      access: 'users.read',
      cache: 'revalidate',
      summary: 'One key of one Program, without the key itself',
      response: keyView,
      volatile: volatileKeyFields,
      handler: async ({ params }, context) => {
        const { keyId = '' } = params;
        const program = await findVisibleProgram(services, context, managedId(params));
        const conditions = keyConditions(context.tenant.id, program?.Id ?? 0, keyId.toLowerCase());
        const key =
          program &&
          isUuid(keyId.toLowerCase()) &&
          viewOf<KeyView>(await queryStatement(services.control, keyTable.selectJson(conditions)));
        if (!key) throw problem('not_found');
        return key;
      },
    }),

    defineRoute({
      ...programDocumentation,
      method: 'POST',
      path,
      access: 'users.manage',
      summary: 'Make a key of one Program, which is returned once',
      description:
        `${programDocumentation.description} A program has at most five valid keys, so that one ` +
        'can be replaced without a pause: make the second, use it, revoke the first. Needs a proof ' +
        'of your password of the last five minutes: a login, or `POST /api/v1/auth/verify`.',
      body: z.object({
        ExpiresAt: moment().nullable().default(null).describe(keyExpiryDescription),
      }),
      example: { ExpiresAt: null },
      response: made,
      status: 201,
      hasTag: true,
      // no other response has the key, so that the tag is good for the revocation
      volatile: [...volatileKeyFields, 'Key'],
      takesIdempotencyKey: true,
      problems: ['limit_reached', 'verification_required'],
      location: key => `${programsPath}/${key.ProgramId}/keys/${key.Id}`,
      handler: async ({ body, params }, context) => {
        const { caller, tenant } = context;
        const expiresAt = expiryOf(body.ExpiresAt, services.tokens.now() * 1_000);
        const findProgram = (transaction: PeopleTransaction) =>
          findManagedUser(managedPrograms, transaction, tenant.id, managedId(params));
        const requireAllowed = async (transaction: PeopleTransaction): Promise<void> => {
          await findProgram(transaction);
          await requireVerified(transaction.query, caller);
        };
        const make = async (transaction: PeopleTransaction): Promise<Statement> => {
          const { id: programId } = await findProgram(transaction);
          const request = { tenantId: tenant.id, programId, madeBy: caller.userId, expiresAt };

          return makeKey(transaction, request, services.secrets);
        };

        const rows = await changePeople(services, context, make, { requireAllowed });
        return openMadeKey(rows, services.secrets);
      },
    }),

    defineRoute({
      ...programDocumentation,
      method: 'DELETE',
      path: `${path}/:keyId`,
      access: 'users.manage',
      summary: 'Revoke one key of one Program: it is refused from then on',
      volatile: volatileKeyFields,
      takesIfMatch: true,
      handler: async ({ params, precondition }, context) => {
        const { tenant } = context;
        await changePeople(services, context, async transaction => {
          const program = await findManagedUser(
            managedPrograms,
            transaction,
            tenant.id,
            managedId(params),
          );
          const key = (params.keyId ?? '').toLowerCase();
          if (!isUuid(key)) throw problem('not_found');

          const conditions = keyConditions(tenant.id, program.id, key);
          await revokeKey(transaction.query, conditions, precondition);
          return nothing;
        });
      },
    }),

    defineRoute({
      ...programDocumentation,
      method: 'POST',
      path: `${programsPath}/keys/revoke`,
      access: 'users.manage',
      summary: 'Revoke all keys that a person has made',
      description:
        `${programDocumentation.description} For the day on which the person leaves: to disable ` +
        'a user leaves the keys valid that the user has made, because programs depend on them.',
      body: z.object({
        MadeBy: longId().describe('The number of the user who has made the keys.'),
      }),
      example: { MadeBy: 7 },
      response: z
        .object({ Revoked: intCount().describe('The number of keys that were valid.') })
        .meta({ title: 'RevokedKeys' }),
      handler: async ({ body }, context) => {
        let revoked = 0;
        await changePeople(services, context, async transaction => {
          revoked = await revokeKeysMadeBy(transaction, context.tenant.id, body.MadeBy);
          return nothing;
        });

        return { Revoked: revoked };
      },
    }),
  ];
}

/**
 * Returns the time at which a new key ends.
 * @param now in ms since 1970
 * @throws {Problem} `validation_failed`
 */
function expiryOf(wanted: Date | null, now: number): Date {
  if (!wanted) return new Date(now + keyDays.default * dayMs);
  if (wanted.getTime() <= now) {
    throw fieldProblem('ExpiresAt', 'must be in the future', 'out_of_range');
  }
  if (wanted.getTime() > now + keyDays.max * dayMs) {
    throw fieldProblem('ExpiresAt', `must be within ${keyDays.max} days`, 'out_of_range');
  }

  return wanted;
}
