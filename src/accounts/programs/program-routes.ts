import { z } from 'zod';
import { queryStatement } from '../../control/database.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { usersVisibleTo } from '../../control/visible-users.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import {
  changeManagedUser,
  disablingRoutes,
  findManagedUser,
  managedId,
} from '../people/change-managed-user.ts';
import {
  changePeople,
  errorsOfPeople,
  type HeldEntity,
  type PeopleTransaction,
} from '../people/change-people.ts';
import { viewOf } from '../people/user-statements.ts';
import {
  addProgram,
  managedPrograms,
  replaceProgram,
  requireValidProgram,
} from './program-records.ts';
import {
  isProgram,
  type ProgramView,
  programById,
  programFields,
  programTable,
  programView,
  replacedFields,
  volatileProgramFields,
} from './program-table.ts';

const { documentation: programDocumentation, path: programsPath } = managedPrograms;

const example = {
  Name: 'Nightly import',
  Role: 'Member',
  Scope: 'All' as const,
  Networks: ['192.0.2.0/24'],
};

const list = listContract({
  view: programView,
  order: { Name: 'asc', Id: 'asc' },
  key: 'Id',
  search: ['Name'],
  includes: ['etag'],
  volatile: volatileProgramFields,
  // The list has no trigram indexes, as that of users.
  hasTrigrams: false,
});

/** The programs of a tenant, for its administrators. */
export function programRoutes(services: AuthServices): TenantRoute[] {
  const { control } = services;

  return [
    defineRoute({
      ...programDocumentation,
      method: 'GET',
      path: programsPath,
      access: 'users.read',
      cache: 'revalidate',
      summary: 'All Program records',
      response: z.array(programView),
      list,
      handler: async ({ list }, context) => {
        const reads = controlReads(control, context);
        const conditions: Condition[] = [
          ...usersVisibleTo(context.tenant.id, context.caller),
          isProgram,
        ];

        return readList(
          list,
          { table: programTable, conditions, reads },
          { orderBy: { name: 'asc', id: 'asc' } },
        );
      },
    }),

    defineRoute({
      ...programDocumentation,
      method: 'GET',
      path: `${programsPath}/:id`,
      access: 'users.read',
      cache: 'revalidate',
      summary: 'One Program record by its id',
      response: programView,
      volatile: volatileProgramFields,
      handler: async ({ params }, { caller, tenant }) => {
        const program = await findVisibleProgram(services, { caller, tenant }, managedId(params));
        if (!program) throw problem('not_found');
        return program;
      },
    }),

    defineRoute({
      ...programDocumentation,
      method: 'POST',
      path: programsPath,
      access: 'users.manage',
      summary: 'Create one Program record',
      body: programFields,
      example,
      response: programView,
      status: 201,
      hasTag: true,
      volatile: volatileProgramFields,
      takesIdempotencyKey: true,
      problems: ['limit_reached'],
      location: program => `${programsPath}/${program.Id}`,
      handler: async ({ body }, context) => {
        const tenantId = context.tenant.id;
        const rows = await changePeople(
          services,
          context,
          async (transaction, entity) =>
            programById(tenantId, await addProgram(transaction, tenantId, body, entity)),
          { entityId: body.EntityId },
        );

        return viewOf<ProgramView>(rows);
      },
      checkValid: ({ body, errors }, context) =>
        errorsOfPeople(
          services,
          context,
          (transaction, entity) =>
            requireValidProgram(transaction, context.tenant.id, body, entity, errors),
          body.EntityId,
        ),
    }),

    defineRoute({
      ...programDocumentation,
      method: 'PUT',
      path: `${programsPath}/:id`,
      access: 'users.manage',
      summary: 'Replace name, role, scope, entity and networks of one Program record',
      body: replacedFields,
      example,
      response: programView,
      hasTag: true,
      volatile: volatileProgramFields,
      takesIfMatch: true,
      problems: ['wrong_state'],
      handler: (input, context) =>
        changeManagedUser(
          managedPrograms,
          services,
          context,
          input,
          (transaction, program, entity) =>
            replaceProgram(transaction, context.tenant.id, program, input.body, entity),
          input.body.EntityId,
        ),
      checkValid: ({ body, errors, params }, context) => {
        const tenantId = context.tenant.id;
        const check = async (transaction: PeopleTransaction, entity: HeldEntity): Promise<void> => {
          const program = await findManagedUser(
            managedPrograms,
            transaction,
            tenantId,
            managedId(params),
          );
          await requireValidProgram(transaction, tenantId, body, entity, errors, program);
        };

        return errorsOfPeople(services, context, check, body.EntityId);
      },
    }),

    ...disablingRoutes(managedPrograms, services, {
      disable: 'Refuse the keys of one Program',
      enable: 'Accept the keys of one disabled Program again',
    }),
  ];
}

/** Returns a program that the caller may see; undefined when there is none with the id. */
export async function findVisibleProgram(
  { control }: Pick<AuthServices, 'control'>,
  { caller, tenant }: Pick<RequestContext, 'caller' | 'tenant'>,
  id: number | undefined,
): Promise<ProgramView | undefined> {
  if (!id) return undefined;
  const conditions = [...usersVisibleTo(tenant.id, caller), isProgram, ['id = ?', id] as const];

  return viewOf<ProgramView>(await queryStatement(control, programTable.selectJson(conditions)));
}
