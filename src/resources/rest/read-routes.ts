import { z } from 'zod';
import { problem } from '../../errors.ts';
import { flag } from '../../http/fields.ts';
import { Representation } from '../../http/representation.ts';
import type { Condition } from '../../postgres/statement.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { codeCondition } from '../record.ts';
import { keyCondition, type PathParams, respondWith, visibleTo } from './resource-access.ts';
import { documentation, type ResourceDefinition } from './resource-definition.ts';

/** GET of one record: by its id, and by its code where the resource has one. */
export function readRoutes(resource: ResourceDefinition): TenantRoute[] {
  const { name, path, key, lookup, recordPath } = resource;
  const routes: TenantRoute[] = [];
  if ('id' in key) {
    const byId = (params: PathParams) => keyCondition(resource, params);
    routes.push(readRoute(resource, recordPath, `One ${name} record by its id`, byId));
  }
  if (lookup) {
    const { property, param } = lookup;
    const byCode = (params: PathParams) => codeCondition(property, params[param]);
    routes.push(readRoute(resource, `${path}/code/:${param}`, `One ${name} record by its code`, byCode));
  }
  return routes;
}

function readRoute(
  resource: ResourceDefinition,
  path: string,
  summary: string,
  find: (params: PathParams) => Condition | undefined,
): TenantRoute {
  const { access, table, view } = resource;
  return defineRoute({
    ...documentation(resource),
    method: 'GET',
    path,
    access: access.read,
    cache: 'revalidate',
    summary,
    query: includeDeleted(resource) as z.ZodObject | undefined,
    response: view,
    handler: async ({ params, query }, context) => {
      const condition = find(params);
      if (!condition) throw problem('not_found');
      const select = () => table.selectRecord([condition, ...visibleTo(resource, context.caller, query)]);
      const cacheKey = `${query.includeDeleted ? 'any ' : ''}${condition.join(' ')}`;
      return respondWith(resource, context, cacheKey, select, ([row]) => {
        if (!row) throw problem('not_found');
        return Representation.ofText(row.json as string);
      });
    },
  });
}

/** The query parameter `includeDeleted`, for resources whose DELETE only marks a record as deleted. */
export function includeDeleted({ softDelete }: ResourceDefinition) {
  return softDelete ? z.object({ includeDeleted: flag() }) : undefined;
}
