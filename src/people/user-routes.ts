import { z } from 'zod';
import type { AuthServices } from '../auth/auth-services.ts';
import { type ControlDatabase, queryControl } from '../control/database.ts';
import { problem } from '../errors.ts';
import { limit, queryId } from '../http/fields.ts';
import { pathId } from '../http/route.ts';
import type { Statement } from '../postgres/table-statements.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import { changeUserRoutes } from './change-user-routes.ts';
import { inviteRoute } from './invite-route.ts';
import { userDocumentation } from './user-documentation.ts';
import { readerOf, type UserView, userById, usersAfter, userView } from './user-statements.ts';

const path = '/api/v1/Users';

/** The users of a tenant, for its administrators. */
export function userRoutes(services: AuthServices): TenantRoute[] {
  const read = (statement: Statement) => readUsers(services.control, statement);
  return [
    defineRoute({
      ...userDocumentation,
      method: 'GET',
      path,
      access: 'users.read',
      cache: 'revalidate',
      summary: 'A page of User records',
      query: z.object({ limit: limit(), after: queryId() }),
      response: z.array(userView),
      handler: async ({ query: { limit, after = 0 } }, { caller, tenant }) =>
        read(usersAfter(readerOf(tenant.id, caller), after, limit)),
    }),
    defineRoute({
      ...userDocumentation,
      method: 'GET',
      path: `${path}/:id`,
      access: 'users.read',
      cache: 'revalidate',
      summary: 'One User record by its id',
      response: userView,
      handler: async ({ params }, { caller, tenant }) => {
        const id = pathId(params.id, Number.MAX_SAFE_INTEGER);
        const [user] = id ? await read(userById(readerOf(tenant.id, caller), id)) : [];
        if (!user) throw problem('not_found');
        return user;
      },
    }),
    inviteRoute(services, path),
    ...changeUserRoutes(services, path),
  ];
}

function readUsers(control: ControlDatabase, { name, text, values }: Statement): Promise<UserView[]> {
  return queryControl<UserView>(control, name, text, values);
}
