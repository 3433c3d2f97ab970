import { z } from 'zod';
import { queryStatement } from '../../control/database.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { usersVisibleTo } from '../../control/visible-users.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import { pathId, type RouteInput } from '../../lib/http/route.ts';
import type { Condition, Statement } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { setUserDisabled } from '../auth/set-user-disabled.ts';
import {
  changePeople,
  errorsOfPeople,
  type HeldEntity,
  type PeopleTransaction,
} from '../people/change-people.ts';
import { viewOf } from '../people/user-statements.ts';
import {
  addProgram,
  findManagedProgram,
  type ManagedProgram,
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

export const programsPath = '/api/v1/Programs';
/** The documentation of every route of programs. */
export const programDocumentation = {
  tag: 'Program',
  description:
    'A program calls the API with keys of its own, and ends with nobody’s login. It has the ' +
    'permissions of its role, as a user has. Nobody makes or changes a program, or makes a key ' +
    'of one, without every permission that it has.',
};

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

type Change = (
  transaction: PeopleTransaction,
  program: ManagedProgram,
  entity: HeldEntity,
) => Promise<void>;

/** The programs of a tenant, for its administrators. */
export function programRoutes(services: AuthServices): TenantRoute[] {
  const { control } = services;
  const idOf = (id: string | undefined) => pathId(id, Number.MAX_SAFE_INTEGER);

  /** Makes a change of the program that the path names, and returns the program. */
  const changeProgram = async (
    { params, precondition }: Pick<RouteInput<never>, 'params' | 'precondition'>,
    context: RequestContext,
    change: Change,
    entityId: number | null = null,
  ): Promise<ProgramView | undefined> => {
    const tenantId = context.tenant.id;
    const changeFound = async (
      transaction: PeopleTransaction,
      entity: HeldEntity,
    ): Promise<Statement> => {
      const id = idOf(params.id);
      const program = await findManagedProgram(transaction, tenantId, id, precondition);
      await change(transaction, program, entity);

      return programById(tenantId, program.id);
    };

    return viewOf<ProgramView>(await changePeople(services, context, changeFound, entityId));
  };

  const disabling = (action: 'disable' | 'enable', summary: string): TenantRoute =>
    defineRoute({
      ...programDocumentation,
      method: 'POST',
      path: `${programsPath}/:id/${action}`,
      access: 'users.manage',
      summary,
      response: programView,
      hasTag: true,
      volatile: volatileProgramFields,
      takesIdempotencyKey: true,
      problems: ['wrong_state'],
      handler: (input, context) =>
        changeProgram(input, context, ({ query }, { id }) =>
          setUserDisabled(query, id, action === 'disable'),
        ),
    });

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
        const program = await findVisibleProgram(services, { caller, tenant }, idOf(params.id));
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
          body.EntityId,
        );

        return viewOf<ProgramView>(rows);
      },
      checkValid: ({ body, errors }, context) =>
        errorsOfPeople(
          services,
          context,
          (transaction, entity) =>
            requireValidProgram(transaction, context.tenant.id, body, entity, errors),
          body.EntityId as number | undefined,
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
        changeProgram(
          input,
          context,
          (transaction, program, entity) =>
            replaceProgram(transaction, context.tenant.id, program, input.body, entity),
          input.body.EntityId,
        ),
      checkValid: ({ body, errors, params }, context) => {
        const tenantId = context.tenant.id;
        const check = async (transaction: PeopleTransaction, entity: HeldEntity): Promise<void> => {
          const program = await findManagedProgram(transaction, tenantId, idOf(params.id));
          await requireValidProgram(transaction, tenantId, body, entity, errors, program);
        };

        return errorsOfPeople(services, context, check, body.EntityId as number | undefined);
      },
    }),

    disabling('disable', 'Refuse the keys of one Program'),
    disabling('enable', 'Accept the keys of one disabled Program again'),
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
