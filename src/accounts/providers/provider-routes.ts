import { z } from 'zod';
import { queryStatement } from '../../control/database.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { pathId } from '../../lib/http/route.ts';
import { isObject } from '../../lib/narrow.ts';
import { nothing } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import {
  changePeople,
  errorsOfPeople,
  type HeldEntity,
  type PeopleTransaction,
} from '../people/change-people.ts';
import { viewOf } from '../people/user-statements.ts';
import {
  addProvider,
  findProvider,
  removeProvider,
  replaceProvider,
  requireMayManageProviders,
  requireValidProvider,
} from './provider-records.ts';
import {
  type ProviderView,
  providerById,
  providerFields,
  providerTable,
  providerView,
  replacedProviderFields,
  volatileProviderFields,
} from './provider-table.ts';

const path = '/api/v1/IdentityProviders';
const common = {
  tag: 'IdentityProvider',
  access: 'users.manage',
  description:
    'A provider of OpenID Connect at which people of the tenant sign in. Needs the scope `All`; to ' +
    'add, change or delete one needs every permission that a role of the tenant has, too, and a ' +
    'proof of who you are of the last five minutes: a login, or `POST /api/v1/auth/verify`. All ' +
    'administrators get a mail.',
} as const;

const replaced = {
  Name: 'Acme staff',
  ClientIds: ['back-office-acme'],
  IsEnabled: true,
  SecondFactor: 'mfa',
  SessionHours: 12,
  CreatesUsers: {
    Role: 'Member',
    Scope: 'All' as const,
    EntityId: null,
    Domains: ['example.com'],
    Claims: { department: 'sales' },
  },
};
const example = { ...replaced, Issuer: 'https://login.example.com/realms/staff' };

/** The providers of a tenant, for its administrators. */
export function providerRoutes(services: AuthServices): TenantRoute[] {
  const { control, notices } = services;
  const idOf = (id: string | undefined) => pathId(id, Number.MAX_SAFE_INTEGER);
  const allowed = (context: RequestContext) => ({
    requireAllowed: (transaction: PeopleTransaction) =>
      requireMayManageProviders(transaction, context),
  });
  const allowedTo = (context: RequestContext, id: number | undefined) => ({
    requireAllowed: async (transaction: PeopleTransaction) => {
      await findProvider(transaction.query, context.tenant.id, id);
      await requireMayManageProviders(transaction, context);
    },
  });

  return [
    defineRoute({
      ...common,
      method: 'GET',
      path,
      cache: 'revalidate',
      summary: 'All IdentityProvider records',
      response: z.array(providerView),
      handler: async (_input, context) => {
        requireScopeAll(context.caller);
        const reads = controlReads(control, context);
        const conditions = [['tenant_id = ?', context.tenant.id] as const];

        return readList(
          undefined,
          { table: providerTable, conditions, reads },
          { orderBy: { name: 'asc', id: 'asc' } },
        );
      },
    }),

    defineRoute({
      ...common,
      method: 'GET',
      path: `${path}/:id`,
      cache: 'revalidate',
      summary: 'One IdentityProvider record by its id',
      response: providerView,
      volatile: volatileProviderFields,
      handler: async ({ params }, { caller, tenant }) => {
        requireScopeAll(caller);
        const id = idOf(params.id);
        const provider =
          id && viewOf<ProviderView>(await queryStatement(control, providerById(tenant.id, id)));
        if (!provider) throw problem('not_found');
        return provider;
      },
    }),

    defineRoute({
      ...common,
      method: 'POST',
      path,
      summary: 'Create one IdentityProvider record',
      body: providerFields,
      example,
      response: providerView,
      status: 201,
      hasTag: true,
      volatile: volatileProviderFields,
      takesIdempotencyKey: true,
      problems: ['duplicate', 'limit_reached', 'migration_pending', 'verification_required'],
      location: provider => `${path}/${provider.Id}`,
      handler: async ({ body }, context) => {
        const { tenant } = context;
        const rows = await changePeople(
          services,
          context,
          async (transaction, entity) =>
            providerById(tenant.id, await addProvider(transaction, services, tenant, body, entity)),
          { entityId: body.CreatesUsers?.EntityId ?? null, ...allowed(context) },
        );
        notices.wake();

        return viewOf<ProviderView>(rows);
      },
      checkValid: ({ body, errors }, context) =>
        errorsOfPeople(
          services,
          context,
          (transaction, entity) =>
            requireValidProvider(transaction, services, context.tenant, body, entity, errors),
          entityOf(body.CreatesUsers),
        ),
    }),

    defineRoute({
      ...common,
      method: 'PUT',
      path: `${path}/:id`,
      summary: 'Replace one IdentityProvider record, except its issuer',
      body: replacedProviderFields,
      example: replaced,
      response: providerView,
      hasTag: true,
      volatile: volatileProviderFields,
      takesIfMatch: true,
      problems: ['migration_pending', 'verification_required'],
      handler: async ({ body, params, precondition }, context) => {
        const { tenant } = context;
        const rows = await changePeople(
          services,
          context,
          async (transaction, entity) => {
            const { query } = transaction;
            const provider = await findProvider(query, tenant.id, idOf(params.id), precondition);
            await replaceProvider(transaction, services, tenant, provider, body, entity);

            return providerById(tenant.id, provider.Id);
          },
          {
            entityId: body.CreatesUsers?.EntityId ?? null,
            ...allowedTo(context, idOf(params.id)),
          },
        );
        notices.wake();

        return viewOf<ProviderView>(rows);
      },
      checkValid: ({ body, errors, params }, context) => {
        const { tenant } = context;
        const check = async (transaction: PeopleTransaction, entity: HeldEntity): Promise<void> => {
          const provider = await findProvider(transaction.query, tenant.id, idOf(params.id));
          await requireValidProvider(
            transaction,
            services,
            tenant,
            body,
            entity,
            errors,
            provider.Issuer,
          );
        };

        return errorsOfPeople(services, context, check, entityOf(body.CreatesUsers));
      },
    }),

    defineRoute({
      ...common,
      method: 'DELETE',
      path: `${path}/:id`,
      summary: 'Delete one IdentityProvider record, with its identities and sessions',
      volatile: volatileProviderFields,
      takesIfMatch: true,
      problems: ['verification_required'],
      handler: async ({ params, precondition }, context) => {
        await changePeople(
          services,
          context,
          async ({ query }) => {
            const { id } = context.tenant;
            await removeProvider(
              query,
              await findProvider(query, id, idOf(params.id), precondition),
            );
            return nothing;
          },
          allowedTo(context, idOf(params.id)),
        );
        notices.wake();
      },
    }),
  ];
}

/** Returns the entity of a valid rule; undefined when there is none. */
function entityOf(rule: unknown): unknown {
  return isObject(rule) ? rule.EntityId : undefined;
}
