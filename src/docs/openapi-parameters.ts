import type { z } from 'zod';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { listParameters } from './openapi-list-parameters.ts';
import { type Json, toSchema } from './openapi-schemas.ts';

/** The parameters of a route: `X-Tenant`, `If-Match`, `Prefer`, `Idempotency-Key`, and those of its path, query and list. */
export function parameters(route: TenantRoute): Json[] {
  return [
    ...tenantHeader(route),
    ...ifMatchHeader(route),
    ...preferHeader(route),
    ...idempotencyKeyHeader(route),
    ...pathParameters(route),
    ...queryParameters(route),
    ...listParameters(route),
  ];
}

function tenantHeader({ access }: TenantRoute): Json[] {
  if (access !== 'anonymous' && access !== 'optional') return [];
  const required = access === 'anonymous';
  const description = 'The guid of the tenant, or its slug.';
  return [{ name: 'X-Tenant', in: 'header', required, description, schema: { type: 'string' } }];
}

function ifMatchHeader({ takesIfMatch }: TenantRoute): Json[] {
  if (!takesIfMatch) return [];
  const description = 'The `ETag` of the record that the change was made for. If the record has changed since: 412.';
  return [{ name: 'If-Match', in: 'header', required: false, description, schema: { type: 'string' } }];
}

function preferHeader({ list }: TenantRoute): Json[] {
  if (!list) return [];
  const description =
    '`count=exact`: the response says in `Content-Range` how many records the list has in all its pages.';
  return [{ name: 'Prefer', in: 'header', required: false, description, schema: { type: 'string' } }];
}

function idempotencyKeyHeader({ takesIdempotencyKey }: TenantRoute): Json[] {
  if (!takesIdempotencyKey) return [];
  const description = 'A new random value. A request that is repeated with it within 24 hours makes the change once.';
  const schema = { type: 'string', minLength: 1, maxLength: 257 };
  return [{ name: 'Idempotency-Key', in: 'header', required: false, description, schema }];
}

function pathParameters({ path }: TenantRoute): Json[] {
  return [...path.matchAll(/:(\w+)/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    description: pathDescriptions[name] ?? name,
    schema: pathSchema(name, path),
  }));
}

function pathSchema(name: string, path: string): Json {
  if (/code$/i.test(name)) return { type: 'string' };
  return path.includes('/sessions/') ? { type: 'string', format: 'uuid' } : { type: 'integer', minimum: 1 };
}

const pathDescriptions: Record<string, string> = {
  id: 'The id of the record.',
  entityId: 'The id of an entity.',
  code: 'The code of the record, in any letter case.',
  promoCode: 'The promo code, in any letter case.',
};

const queryDescriptions: Record<string, string> = {
  limit: 'The maximum number of records: 20 by default. A value above 1,000 counts as 1,000.',
  after:
    'Return the records whose id is greater than this one: the last id of the previous page. Or the cursor of the next ' +
    'page, as in the `Link` header of the page before.',
  includeDeleted: 'Whether to include records that are marked as deleted.',
  userId: 'Return only entries of this user.',
  entityId: 'Return only entries of this entity.',
  resource: 'Return only entries of this resource, such as `Country`.',
  key: 'Return only entries of the record with this id or code.',
};

/** A query string holds text only. The types are those of the values that the text stands for. */
function queryParameters({ query }: TenantRoute): Json[] {
  return Object.entries(query?.shape ?? {}).map(([name, field]) => {
    const { data: defaultValue, success } = (field as z.ZodType).safeParse(undefined);
    const description = (field as z.ZodType).description ?? queryDescriptions[name];
    const { enum: values } = toSchema(field as z.ZodType, 'input');
    const schema = {
      ...querySchema(name, defaultValue),
      ...(values && typeof defaultValue !== 'boolean' ? { enum: values } : {}),
    };
    return { name, in: 'query', required: !success, description, schema };
  });
}

/** @param defaultValue what the handler receives when the client does not send the parameter */
function querySchema(name: string, defaultValue: unknown): Json {
  const withDefault = defaultValue === undefined ? {} : { default: defaultValue };
  if (typeof defaultValue === 'boolean') return { type: 'boolean', ...withDefault };
  if (name === 'after') return { type: ['integer', 'string'] };
  if (/^(limit|.*Id)$/.test(name)) return { type: 'integer', minimum: 1, ...withDefault };
  return { type: 'string', ...withDefault };
}
