import type { z } from 'zod';
import type { TenantRoute } from '../tenancy/define-route.ts';
import type { Json } from './openapi-schemas.ts';

/** What a request carries beside its body. */
export function parameters(route: TenantRoute): Json[] {
  return [...tenantHeader(route), ...pathParameters(route), ...queryParameters(route)];
}

function tenantHeader({ access }: TenantRoute): Json[] {
  if (access !== 'anonymous' && access !== 'optional') return [];
  const schema = { type: 'string', format: 'uuid' };
  const required = access === 'anonymous';
  return [{ name: 'X-Tenant', in: 'header', required, description: 'The guid of the tenant.', schema }];
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

const parameterDescriptions: Record<string, string> = {
  limit: 'How many records at most: 1 or more, 20 unless given. More than 1,000 counts as 1,000.',
  after: 'Only records after this id: the last one of the page before.',
  includeDeleted: 'Whether records marked as deleted are shown.',
  userId: 'Only of this user.',
  entityId: 'Only of this entity.',
  resource: 'Only of this resource, such as `Country`.',
  key: 'Only of the record with this id or code.',
};

/** What a parameter stands for once read, since a query string itself has no numbers. */
function queryParameters({ query }: TenantRoute): Json[] {
  return Object.entries(query?.shape ?? {}).map(([name, field]) => {
    const { data: fallback } = (field as z.ZodType).safeParse(undefined); // what the handler gets when it is not sent
    const type = typeof fallback === 'boolean' ? 'boolean' : /^(limit|after|.*Id)$/.test(name) ? 'integer' : 'string';
    const schema = {
      type,
      ...(type === 'integer' ? { minimum: 1 } : {}),
      ...(fallback === undefined ? {} : { default: fallback }),
    };
    return { name, in: 'query', required: false, description: parameterDescriptions[name] ?? name, schema };
  });
}
