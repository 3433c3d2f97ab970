import type { AuthServices } from '../auth/auth-services.ts';
import { revokeSessionsOf } from '../auth/sessions.ts';
import { setDisabled } from '../auth/set-disabled.ts';
import { pathId, type RouteInput } from '../http/route.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { changePeople, type PeopleTransaction } from './change-people.ts';
import { userDocumentation } from './user-documentation.ts';
import { checkEntity, findManagedUser, type ManagedUser, replaceUser, userFields } from './user-records.ts';
import { type UserView, userById, userView, viewOf } from './user-statements.ts';

type Change = (transaction: PeopleTransaction, user: ManagedUser) => Promise<void>;

/** PUT of a user; POST that disables and enables one; DELETE of a user's sessions. */
export function changeUserRoutes(services: AuthServices, path: string): TenantRoute[] {
  const common = { ...userDocumentation, access: 'users.manage' } as const;
  const recordPath = `${path}/:id`;
  /** Makes a change of the user that the path names, and returns the user. */
  const changeUser = async (
    { params, precondition }: Pick<RouteInput<never>, 'params' | 'precondition'>,
    context: RequestContext,
    change: Change,
  ): Promise<UserView | undefined> => {
    const tenantId = context.tenant.id;
    const rows = await changePeople(services, context, async transaction => {
      const id = pathId(params.id, Number.MAX_SAFE_INTEGER);
      const user = await findManagedUser(transaction, tenantId, id, precondition);
      await change(transaction, user);
      return userById([['tenant_id = ?', tenantId]], user.id);
    });
    return viewOf<UserView>(rows);
  };
  return [
    defineRoute({
      ...common,
      method: 'PUT',
      path: recordPath,
      summary: 'Replace names, role, scope and entity of one User record',
      body: userFields,
      example: { FirstName: 'Nora', LastName: 'Newman', Role: 'Member', Scope: 'All', EntityId: null },
      response: userView,
      hasTag: true,
      takesIfMatch: true,
      handler: async (input, context) => {
        const requireEntity = await checkEntity(context, input.body.EntityId);
        return changeUser(input, context, async (transaction, user) => {
          requireEntity();
          await replaceUser(transaction, context.tenant.id, user, input.body);
        });
      },
    }),
    defineRoute({
      ...common,
      method: 'POST',
      path: `${recordPath}/disable`,
      summary: 'Refuse the logins of one User, end all sessions of the user, and make all links in mails void',
      response: userView,
      hasTag: true,
      takesIdempotencyKey: true,
      handler: (input, context) => changeUser(input, context, ({ query }, { id }) => setDisabled(query, id, true)),
    }),
    defineRoute({
      ...common,
      method: 'POST',
      path: `${recordPath}/enable`,
      summary: 'Allow the logins of one disabled User again; links in earlier mails stay void',
      response: userView,
      hasTag: true,
      takesIdempotencyKey: true,
      handler: (input, context) => changeUser(input, context, ({ query }, { id }) => setDisabled(query, id, false)),
    }),
    defineRoute({
      ...common,
      method: 'DELETE',
      path: `${recordPath}/sessions`,
      summary: 'End all sessions of one User',
      takesIfMatch: true,
      handler: async (input, context) => {
        await changeUser(input, context, ({ query }, { id }) => revokeSessionsOf(query, id, 'ended'));
      },
    }),
  ];
}
