import { z } from 'zod';
import { queryStatement } from '../../control/database.ts';
import { permissions } from '../../control/permissions.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { usersVisibleTo } from '../../control/visible-users.ts';
import { describeFields, lengths, limit, queryId, text } from '../../lib/http/request/fields.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import { pathId } from '../../lib/http/route.ts';
import { type Condition, nothing } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { changePeople, errorsOfPeople } from './change-people.ts';
import { changeUserRoutes, inviteRoute } from './change-user-routes.ts';
import { changeRole, createRole, deleteRole, requireValidRole } from './role-records.ts';
import { roleSecondFactorRoutes } from './role-second-factor.ts';
import { userDocumentation } from './user-documentation.ts';
import { managedPeople } from './user-records.ts';
import {
  roleById,
  roleFields,
  roleOf,
  roleTable,
  roleText,
  roleView,
  type UserView,
  userById,
  userTable,
  userView,
  viewOf,
  volatileUserFields,
} from './user-statements.ts';

const query = z.object({ limit: limit(), after: queryId() });
const list = listContract({
  view: userView,
  query,
  order: { Id: 'asc' },
  includes: ['etag'],
  volatile: volatileUserFields,
  key: 'Id',
  search: ['Email', 'FirstName', 'LastName'],
  // The list has no trigram indexes: in the control database, each login would update them.
  hasTrigrams: false,
});

/** The condition for the people among the users of other conditions. */
const isPerson: Condition = ['kind = ?', 'person'];

/** The users of a tenant, for its administrators. */
export function userRoutes(services: AuthServices): TenantRoute[] {
  const { path } = managedPeople;

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
        const conditions: Condition[] = [...usersVisibleTo(tenant.id, caller), isPerson];
        if (after !== undefined) conditions.push(['id > ?', after]);

        return readList(
          list,
          { table: userTable, conditions, reads },
          { orderBy: { id: 'asc' }, limit },
        );
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
      volatile: volatileUserFields,
      handler: async ({ params }, { caller, tenant }) => {
        const id = pathId(params.id, Number.MAX_SAFE_INTEGER);
        const user =
          id &&
          viewOf<UserView>(
            await queryStatement(
              services.control,
              userById([...usersVisibleTo(tenant.id, caller), isPerson], id),
            ),
          );
        if (!user) throw problem('not_found');
        return user;
      },
    }),

    inviteRoute(services),
    ...changeUserRoutes(services),
  ];
}

const rolesPath = '/api/v1/Roles';
const common = {
  tag: 'Role',
  access: 'users.manage',
  description:
    'A role is a named set of permissions. The roles `Administrator` and `Member` cannot ' +
    'be changed. Nobody creates, changes or deletes a role with a permission that they do not ' +
    'have themselves.',
} as const;

const contract = describeFields(
  {
    Name: text({ max: lengths.name }),
    Permissions: z.array(z.enum(permissions)).max(permissions.length),
  },
  roleFields,
);
const example = { Name: 'Buyer', Permissions: ['orders.read', 'orders.write'] as const };

const roleList = listContract({
  // An export keeps its columns.
  view: roleView.omit({ RequiresSecondFactor: true }),
  order: { Name: 'asc', Id: 'asc' },
  key: 'Id',
  search: ['Name'],
  includes: ['etag'],
});

/** The roles of a tenant, for its administrators. */
export function roleRoutes(services: AuthServices): TenantRoute[] {
  const { control } = services;
  const idOf = (id: string | undefined) => pathId(id, Number.MAX_SAFE_INTEGER);

  return [
    defineRoute({
      ...common,
      method: 'GET',
      path: rolesPath,
      cache: 'revalidate',
      summary: 'All Role records',
      response: z.array(roleView),
      list: roleList,
      handler: async ({ list }, context) => {
        const reads = controlReads(control, context);
        const conditions: Condition[] = [['tenant_id = ?', context.tenant.id]];
        return readList(
          list,
          { table: roleTable, conditions, reads, toResponse: roleText },
          { orderBy: { name: 'asc', id: 'asc' } },
        );
      },
    }),

    defineRoute({
      ...common,
      method: 'GET',
      path: `${rolesPath}/:id`,
      cache: 'revalidate',
      summary: 'One Role record by its id',
      response: roleView,
      handler: async ({ params }, { tenant }) => {
        const id = idOf(params.id);
        const role = id && roleOf(await queryStatement(control, roleById(tenant.id, id)));
        if (!role) throw problem('not_found');
        return role;
      },
    }),

    defineRoute({
      ...common,
      method: 'POST',
      path: rolesPath,
      summary: 'Create one Role record',
      body: contract,
      example: { ...example, Permissions: [...example.Permissions] },
      response: roleView,
      status: 201,
      hasTag: true,
      takesIdempotencyKey: true,
      problems: ['duplicate', 'limit_reached'],
      location: role => `${rolesPath}/${role.Id}`,
      handler: async ({ body }, context) => {
        const tenantId = context.tenant.id;
        const rows = await changePeople(services, context, async transaction =>
          roleById(tenantId, await createRole(transaction, tenantId, body)),
        );
        return roleOf(rows);
      },
      checkValid: ({ body }, context) =>
        errorsOfPeople(services, context, transaction =>
          requireValidRole(transaction, context.tenant.id, body),
        ),
    }),

    defineRoute({
      ...common,
      method: 'PUT',
      path: `${rolesPath}/:id`,
      summary: 'Replace one Role record',
      body: contract,
      example: { ...example, Permissions: [...example.Permissions] },
      response: roleView,
      hasTag: true,
      takesIfMatch: true,
      problems: ['duplicate', 'wrong_state'],
      handler: async ({ body, params, precondition }, context) => {
        const tenantId = context.tenant.id;
        const rows = await changePeople(services, context, async transaction => {
          const id = await changeRole(
            transaction,
            { tenantId, id: idOf(params.id), precondition },
            body,
          );
          return roleById(tenantId, id);
        });
        return roleOf(rows);
      },
      checkValid: ({ body, params }, context) => {
        const tenantId = context.tenant.id;
        const key = { tenantId, id: idOf(params.id) };
        return errorsOfPeople(services, context, transaction =>
          requireValidRole(transaction, tenantId, body, key),
        );
      },
    }),

    ...roleSecondFactorRoutes(services, rolesPath),

    defineRoute({
      ...common,
      method: 'DELETE',
      path: `${rolesPath}/:id`,
      summary: 'Delete one Role record that no user has',
      takesIfMatch: true,
      problems: ['in_use', 'wrong_state'],
      handler: async ({ params, precondition }, context) => {
        await changePeople(services, context, async transaction => {
          await deleteRole(transaction, {
            tenantId: context.tenant.id,
            id: idOf(params.id),
            precondition,
          });
          return nothing;
        });
      },
    }),
  ];
}
