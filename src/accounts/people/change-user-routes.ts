import { z } from 'zod';
import { email } from '../../lib/http/request/email.ts';
import { intCount } from '../../lib/http/request/fields.ts';
import { nothing, type Statement } from '../../lib/postgres/statement.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { resetFactors } from '../auth/factors/factor-store.ts';
import { revokeSessionsOf } from '../auth/sessions.ts';
import { requireVerified } from '../auth/verify.ts';
import { addInvitationMail } from '../mails/mail-requests.ts';
import {
  changeManagedUser,
  disablingRoutes,
  findManagedUser,
  type ManagedChange,
  managedId,
} from './change-managed-user.ts';
import {
  changePeople,
  errorsOfPeople,
  type HeldEntity,
  type PeopleTransaction,
  rateLimited,
} from './change-people.ts';
import { inviteUser, requireInvitable } from './invite-user.ts';
import { userDocumentation } from './user-documentation.ts';
import {
  correctAddress,
  errorsOfEntity,
  type ManagedPerson,
  managedPeople,
  replaceUser,
  requireReplaceable,
  takeBack,
  userFields,
} from './user-records.ts';
import {
  emailDescription,
  type UserView,
  userView,
  viewOf,
  volatileUserFields,
} from './user-statements.ts';

/**
 * PUT and DELETE of a user; POST that disables and enables one; DELETE of a user's sessions.
 */
export function changeUserRoutes(services: AuthServices): TenantRoute[] {
  const common = {
    ...userDocumentation,
    access: 'users.manage',
    volatile: volatileUserFields,
  } as const;
  const recordPath = `${managedPeople.path}/:id`;

  return [
    defineRoute({
      ...common,
      method: 'PUT',
      path: recordPath,
      summary:
        'Replace names, role, scope and entity of one User record, and the address until it ' +
        'is confirmed',
      description:
        `${userDocumentation.description} An \`Email\` that differs corrects the address of a ` +
        'person who was invited: links in mails to the former address are void, and the new ' +
        'one receives the invitation. A confirmed address stays.',
      body: userFields.extend({ Email: email().optional().describe(emailDescription) }),
      example: {
        FirstName: 'Nora',
        LastName: 'Newman',
        Role: 'Member',
        Scope: 'All',
        EntityId: null,
      },
      response: userView,
      hasTag: true,
      takesIfMatch: true,
      problems: ['duplicate', 'wrong_state'],
      handler: async (input, context) => {
        const { EntityId } = input.body;
        const { tenant } = context;
        const replace: ManagedChange<ManagedPerson> = async (transaction, user, entity) => {
          const { body } = input;
          const roleId = await requireReplaceable(
            transaction,
            tenant.id,
            user,
            body,
            errorsOfEntity(user, entity),
          );
          await replaceUser(transaction, user, roleId, { ...body, entitySince: entity.since });
          const isCorrected = await correctAddress(transaction, user, body.Email);
          if (!isCorrected || user.isDisabled) return;

          await addInvitation(services, context, transaction, user.id);
        };

        const changed = await changeManagedUser(
          managedPeople,
          services,
          context,
          input,
          replace,
          EntityId,
        );
        services.mails.wake();
        return changed;
      },
      checkValid: ({ body, errors, params }, context) => {
        const tenantId = context.tenant.id;
        const check = async (transaction: PeopleTransaction, entity: HeldEntity): Promise<void> => {
          const id = managedId(params);
          const user = await findManagedUser(managedPeople, transaction, tenantId, id);
          const all = { ...errors, ...errorsOfEntity(user, entity) };
          await requireReplaceable(transaction, tenantId, user, body, all);
        };
        return errorsOfPeople(services, context, check, body.EntityId);
      },
    }),
    defineRoute({
      ...common,
      method: 'DELETE',
      path: recordPath,
      summary: 'Take the invitation of one User back',
      description:
        `${userDocumentation.description} Removes a person who has not accepted an ` +
        'invitation, or not confirmed a registration: links in mails are void, and the ' +
        'address can be invited again. Who has accepted is disabled instead.',
      takesIfMatch: true,
      problems: ['in_use', 'wrong_state'],
      handler: async ({ params, precondition }, context) => {
        await changePeople(services, context, async transaction => {
          const { tenant } = context;
          const id = managedId(params);
          await takeBack(
            transaction,
            await findManagedUser(managedPeople, transaction, tenant.id, id, precondition),
          );
          return nothing;
        });
      },
    }),
    ...disablingRoutes(managedPeople, services, {
      disable:
        'Refuse the logins of one User, end all sessions of the user, and make all links in ' +
        'mails void',
      enable: 'Allow the logins of one disabled User again; links in earlier mails stay void',
    }),
    defineRoute({
      ...common,
      method: 'DELETE',
      path: `${recordPath}/sessions`,
      summary: 'End all sessions of one User',
      takesIfMatch: true,
      handler: async (input, context) => {
        await changeManagedUser(managedPeople, services, context, input, ({ query }, { id }) =>
          revokeSessionsOf(query, id, 'ended'),
        );
      },
    }),
    defineRoute({
      ...userDocumentation,
      method: 'POST',
      path: `${recordPath}/factors/reset`,
      access: 'users.manage',
      summary: 'Remove all second factors of one User, who has lost them',
      description:
        `${userDocumentation.description} The recovery codes end, too, and the sessions of the ` +
        'user go on. Needs a proof of your own password of the last five minutes, and of your ' +
        'second factor if you have one: a login, or `POST /api/v1/auth/verify`.',
      problems: ['verification_required'],
      response: z
        .object({ Removed: intCount().describe('The number of factors that the user had.') })
        .meta({ title: 'ResetFactors' }),
      handler: async ({ params }, context) => {
        let removed = 0;
        await changePeople(services, context, async transaction => {
          const { caller, tenant } = context;
          const id = managedId(params);
          const user = await findManagedUser(managedPeople, transaction, tenant.id, id);
          await requireVerified(transaction.query, caller);
          removed = await resetFactors(transaction.query, tenant.id, user.id);

          return nothing;
        });
        return { Removed: removed };
      },
    }),
  ];
}

/**
 * POST of a user: invites a person, by a mail with a token that sets the first password. The
 * mail is stored in the transaction that makes the user, so that a process which is killed
 * loses none.
 */
export function inviteRoute(services: AuthServices): TenantRoute {
  const { path } = managedPeople;

  return defineRoute({
    ...userDocumentation,
    method: 'POST',
    path,
    access: 'users.manage',
    summary: 'Invite a person, who receives a mail to set a password',
    description:
      'The token of the mail is valid once, for 7 days: it sets the first password at ' +
      '`/api/v1/auth/reset-password`. Until then the user cannot log in. Inviting an ' +
      'address again that has not accepted yet replaces names, role, scope and entity. The ' +
      'former token stays valid until the new mail may have arrived. A mail that is not ' +
      'accepted is tried again; `MailState` of the user says how it is doing.',
    body: userFields.extend({ Email: email().describe(emailDescription) }),
    example: {
      Email: 'nora@example.com',
      FirstName: 'Nora',
      LastName: 'Newman',
      Role: 'Member',
      Scope: 'All',
    },
    response: userView,
    status: 201,
    hasTag: true,
    volatile: volatileUserFields,
    takesIdempotencyKey: true,
    problems: ['duplicate', 'limit_reached'],
    location: user => `${path}/${user.Id}`,
    handler: async ({ body }, context) => {
      const { tenant } = context;
      const invite = async (
        transaction: PeopleTransaction,
        entity: HeldEntity,
      ): Promise<Statement> => {
        const id = await inviteUser(transaction, tenant.id, body, entity);
        await addInvitation(services, context, transaction, id);

        return managedPeople.byId(tenant.id, id);
      };

      const rows = await changePeople(services, context, invite, { entityId: body.EntityId });
      services.mails.wake();

      return viewOf<UserView>(rows);
    },
    checkValid: ({ body, errors }, context) =>
      errorsOfPeople(
        services,
        context,
        (transaction, entity) =>
          requireInvitable(transaction, context.tenant.id, body, entity, errors),
        body.EntityId,
      ),
  });
}

/**
 * Adds the mail of an invitation to a user of the tenant.
 * @throws {Problem} when the user, or the tenant, has received as many as the limits allow
 */
async function addInvitation(
  { mailRate }: AuthServices,
  { tenant, origin }: RequestContext,
  { query }: PeopleTransaction,
  userId: number,
): Promise<void> {
  const user = { id: userId, tenantId: tenant.id };
  const delayMs = await addInvitationMail(query, user, origin.traceId, mailRate);
  if (delayMs > 0) throw rateLimited(delayMs);
}
