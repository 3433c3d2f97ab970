import { z } from 'zod';
import type { AuthServices } from '../auth/auth-services.ts';
import { queryStatement } from '../control/database.ts';
import { controlReads } from '../control/tenant-queues.ts';
import { problem } from '../errors.ts';
import { limit, queryId } from '../http/fields.ts';
import { listContract } from '../http/lists/list-contract.ts';
import { pathId } from '../http/route.ts';
import { readList } from '../lists/read-page.ts';
import type { Condition } from '../postgres/statement.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import { changeUserRoutes } from './change-user-routes.ts';
import { inviteRoute } from './invite-route.ts';
import { userDocumentation } from './user-documentation.ts';
import { type UserView, userById, userTable, userView, viewOf, visibleTo } from './user-statements.ts';

const path = '/api/v1/Users';
const query = z.object({ limit: limit(), after: queryId() });
const list = listContract({
  view: userView,
  query,
  order: { Id: 'asc' },
  includes: ['etag'],
  key: 'Id',
  search: ['Email', 'FirstName', 'LastName'],
  hasTrigrams: false, // in the control database, each login would update them
});

/** The users of a tenant, for its administrators. */
export function userRoutes(services: AuthServices): TenantRoute[] {
  return [
    defineRoute({
      ...userDocumentation,
      method: 'GET',
      path,
      access: 'users.read',
      cache: 'revalidate',
      summary: 'A page of User records',
      query,
      list,
      response: z.array(userView),
      handler: async ({ query: { limit, after }, list }, context) => {
        const { caller, tenant } = context;
        const reads = controlReads(services.control, context);
        const conditions: Condition[] = visibleTo(tenant.id, caller);
        if (after !== undefined) conditions.push(['id > ?', after]);
        return readList(list, { table: userTable, conditions, reads }, { orderBy: { id: 'asc' }, limit });
      },
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
        const user =
          id && viewOf<UserView>(await queryStatement(services.control, userById(visibleTo(tenant.id, caller), id)));
        if (!user) throw problem('not_found');
        return user;
      },
    }),
    inviteRoute(services, path),
    ...changeUserRoutes(services, path),
  ];
}
