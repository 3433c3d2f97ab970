import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { controlReads } from '../../control/tenant-queues.ts';
import { userNamesOf } from '../../control/visible-users.ts';
import {
  describeFields,
  intCount,
  limit,
  longId,
  queryId,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import type { ListQuery } from '../../lib/http/request/list-parameters/list-query.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import type { AuthServices } from './auth-services.ts';
import { failureReasons } from './failed-logins.ts';

const outcomes = ['succeeded', 'failed'] as const;

/** A login as the list has it. For reads only. */
const LoginSchema = defineEntity({
  name: 'Login',
  tableName: 'logins',
  properties: {
    id: p.bigint('number').primary(),
    createdAt: p.datetime(),
    userId: p.bigint('number').nullable(),
    method: p.text().nullable(),
    outcome: p.text().$type<(typeof outcomes)[number]>(),
    failureReason: p.text().fieldName('reason').$type<(typeof failureReasons)[number]>().nullable(),
    network: p.text().nullable(),
    userAgent: p.text().nullable(),
    count: p.integer(),
  },
});
class Login extends LoginSchema.class {}
LoginSchema.setClass(Login);

const view = describeFields(
  {
    Id: longId(),
    CreatedAt: timestamp(),
    UserId: longId().nullable(),
    Method: z.string().nullable(),
    Outcome: z.enum(outcomes),
    FailureReason: z.enum(failureReasons).nullable(),
    Network: z.string().nullable(),
    UserAgent: z.string().nullable(),
    Count: intCount(),
  },
  {
    Id: 'The number of the record.',
    CreatedAt:
      'When the person logged in, or tried to. Of a record for several logins, the beginning of ' +
      'their hour.',
    UserId: 'The number of the user; null for addresses that no user has.',
    Method:
      'What was proved or tried, by RFC 8176, such as `pwd` or `pwd otp`; `idp`: a sign-in by a ' +
      'provider. Null for several logins.',
    Outcome: 'How it ended.',
    FailureReason:
      'Why it failed; null if it succeeded. `account_inactive`: the account is disabled, or not ' +
      'confirmed yet. `identity_held`: a new password by a link holds this sign-in by a provider. ' +
      '`more_failures`: those of a user in an hour after the first 20. ' +
      '`unknown_address`: all of an hour whose address no user has.',
    Network: 'The IPv4 address, or the IPv6 network of 64 bits; null for several logins.',
    UserAgent:
      'The program of the client, as it names itself: the first 60 characters of `User-Agent`; ' +
      'null if it names none, and for several logins.',
    Count: 'The logins that the record stands for.',
  },
).meta({ title: 'Login' });

const table = new TableStatements(Login, view);

const query = z.object({ limit: limit() });
const listOptions = {
  view,
  order: { Id: 'desc' },
  key: 'Id',
  search: ['Network', 'UserAgent'],
  // The list has no trigram indexes, as that of users.
  hasTrigrams: false,
} as const;
const list = listContract({
  ...listOptions,
  query: query.extend({ userId: queryId() }),
  includes: ['user'],
});
const ownList = listContract({ ...listOptions, query });

const description =
  'A refresh of tokens, a key of a program and a token of one are no logins. A login that fails ' +
  'appears within two seconds. Of a user, the first 20 that fail in an hour have a record each; ' +
  'those beyond, and those to addresses that no user has, are the `Count` of one record an hour.';

/** The logins of a tenant, and those of the caller. */
export function loginListRoutes(services: AuthServices): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/api/v1/Logins',
      access: 'users.read',
      tag: 'User',
      summary: 'The newest logins, of a user or of all',
      description: `${description} Needs the scope \`All\`.`,
      query: query.extend({ userId: queryId() }),
      list,
      response: z.array(view),
      handler: async ({ query: { limit, userId }, list }, context) => {
        requireScopeAll(context.caller);

        return readLogins(services, context, list, { limit, userId });
      },
    }),

    defineRoute({
      method: 'GET',
      path: '/api/v1/auth/logins',
      access: 'user',
      tag: 'Authentication',
      summary: 'Your newest logins',
      description,
      query,
      list: ownList,
      response: z.array(view),
      handler: async ({ query: { limit }, list }, context) =>
        readLogins(services, context, list, { limit, userId: context.caller.userId }),
    }),
  ];
}

/** @param userId undefined for the logins of all users */
async function readLogins(
  { control }: AuthServices,
  context: RequestContext,
  list: ListQuery | undefined,
  { limit, userId }: { limit: number; userId: number | undefined },
) {
  const conditions: (Condition | undefined)[] = [
    ['tenant_id = ?', context.tenant.id],
    userId === undefined ? undefined : ['user_id = ?', userId],
    ['count > 0'],
  ];
  const reads = controlReads(control, context);
  const userNames = userNamesOf(control, context, context.caller);

  return readList(
    list,
    { table, conditions, reads, userNames },
    { orderBy: { id: 'desc' }, limit },
  );
}
