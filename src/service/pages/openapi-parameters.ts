import { z } from 'zod';
import { intId, longId } from '../../lib/http/request/fields.ts';
import { schemaOf } from '../../lib/http/schema-of.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import { listParameters } from './openapi-list-parameters.ts';
import { exampleOfField } from './openapi-responses.ts';
import { itemOf, type Json, toSchema } from './openapi-schemas.ts';

/**
 * The parameters of a route: its headers, and those of its path, query and list.
 * @param routes all routes, among them the lists of what paths name
 */
export function parameters(route: TenantRoute, routes: readonly TenantRoute[]): Json[] {
  return [
    ...headers(route),
    ...pathParameters(route, routes),
    ...queryParameters(route),
    ...listParameters(route),
  ];
}

function headers({
  access,
  cache,
  takesIfMatch,
  volatile = [],
  list,
  takesIdempotencyKey,
  takesLastEventId,
}: TenantRoute): Json[] {
  const tenant =
    access === 'anonymous' ? 'The guid of the tenant, or its slug.' : 'The guid of the tenant.';
  const namesTenant = access === 'anonymous' || access === 'optional';
  const others = volatile.map(name => `\`${name}\``).join(', ');
  const tag =
    'The `ETag` of the record that the change was made for. If the record has changed since: 412.' +
    (others && ` Changes of ${others} alone do not count.`);
  const known =
    'An `ETag` of the response, which the client has. If it is current: 304 without a body.';
  const unwanted = 'If the record has this `ETag`, the change is not made: 412.';
  const count =
    '`count=exact`: the response says in `Content-Range` how many records the list has in ' +
    'all its pages.';
  const key =
    'A new random value. A request that is repeated with it within 24 hours makes the change once.';
  const event = 'The `id` of the last event that was received: the stream goes on after it.';

  return [
    namesTenant && header('X-Tenant', tenant, { required: access === 'anonymous' }),
    takesIfMatch && header('If-Match', tag),
    takesIfMatch && header('If-None-Match', unwanted),
    cache === 'revalidate' && header('If-None-Match', known),
    list && header('Prefer', count),
    takesIdempotencyKey && header('Idempotency-Key', key, { minLength: 1, maxLength: 257 }),
    takesLastEventId && header('Last-Event-ID', event),
  ].filter(each => typeof each === 'object');
}

function header(
  name: string,
  description: string,
  { required = false, ...limits }: Json = {},
): Json {
  return { name, in: 'header', required, description, schema: { type: 'string', ...limits } };
}

function pathParameters({ path }: TenantRoute, routes: readonly TenantRoute[]): Json[] {
  return [...path.matchAll(/\/:(\w+)/g)].map(({ 1: name = '', index }) => ({
    name,
    in: 'path',
    required: true,
    description: pathDescriptions[name] ?? name,
    ...fieldOfPath(name, path.slice(0, index), routes),
  }));
}

/**
 * The schema and an example of a parameter of a path: those of the field that it names in the
 * records of the list.
 * @param before the path before the parameter: that of the list, or one that begins with it
 */
function fieldOfPath(name: string, before: string, routes: readonly TenantRoute[]): Json {
  const lists = routes.filter(
    ({ method, path, response }) =>
      method === 'GET' &&
      (name === 'entityId' ? path === entitiesPath : before.startsWith(path)) &&
      response instanceof z.ZodArray,
  );
  const list = lists.toSorted((one, other) => other.path.length - one.path.length)[0];
  const view = list?.response && itemOf(list.response);
  if (!(view instanceof z.ZodObject)) throw new Error(`no list has what :${name} names`);

  const ending = /id$/i.test(name) ? 'id' : name.toLowerCase();
  const property = Object.keys(view.shape).find(each => each.toLowerCase().endsWith(ending)) ?? '';
  const { description, ...schema } = toSchema(schemaOf(view.shape[property]), 'output');

  return { schema, example: exampleOfField(view, property, routes) };
}

const entitiesPath = '/api/v1/Entities';

const pathDescriptions: Record<string, string> = {
  id: 'The id of the record.',
  entityId: 'The id of an entity.',
  keyId: 'The id of a key.',
  code: 'The code of the record, in any letter case.',
  promoCode: 'The promo code, in any letter case.',
};

const queryDescriptions: Record<string, string> = {
  limit: 'The maximum number of records: 20 by default. A value above 1,000 counts as 1,000.',
  after:
    'Return the records whose id is greater than this one: the last id of the previous page. ' +
    'Or the cursor of the next page, as in the `Link` header of the page before.',
  includeDeleted: 'Whether to include records that are marked as deleted.',
  userId: 'Return only entries of this user.',
  entityId: 'Return only entries of this entity.',
  resource: 'Return only entries of this resource, such as `Country`.',
  key: 'Return only entries of the record with this id or code.',
};

/**
 * A query string holds text only. The types are those of the values that the text stands for.
 */
function queryParameters(route: TenantRoute): Json[] {
  const { query } = route;
  return Object.entries(query?.shape ?? {}).map(([name, field]) => {
    const { data: defaultValue, success } = schemaOf(field).safeParse(undefined);
    const description = schemaOf(field).description ?? queryDescriptions[name];
    const { enum: values, format } = toSchema(schemaOf(field), 'input');
    const schema = {
      ...querySchema(name, defaultValue, route),
      ...(values && typeof defaultValue !== 'boolean' ? { enum: values } : {}),
      ...(format === 'date-time' ? { format } : {}),
    };
    return { name, in: 'query', required: !success, description, schema };
  });
}

/** @param defaultValue what the handler receives when the client does not send the parameter */
function querySchema(name: string, defaultValue: unknown, { list }: TenantRoute): Json {
  const withDefault = defaultValue === undefined ? {} : { default: defaultValue };
  if (typeof defaultValue === 'boolean') return { type: 'boolean', ...withDefault };
  if (name === 'after' && list) return { anyOf: [toSchema(longId(), 'input'), { type: 'string' }] };
  if (name === 'limit') return { ...toSchema(intId(), 'input'), ...withDefault };
  if (name.endsWith('Id')) return { ...toSchema(longId(), 'input'), ...withDefault };
  return { type: 'string', ...withDefault };
}
