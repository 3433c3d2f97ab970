import { z } from 'zod';
import { problem } from '../../errors.ts';
import { limit, queryId } from '../../http/fields.ts';
import { Representation } from '../../http/representation.ts';
import type { Condition } from '../../postgres/table-statements.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { includeDeleted } from './read-routes.ts';
import { respondWith, visibleTo } from './resource-access.ts';
import { documentation, type ResourceDefinition } from './resource-definition.ts';

/** GET of the collection: a page of records, or all of them. */
export function listRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, access, table, view, orderBy, paged } = resource;
  return defineRoute({
    ...documentation(resource),
    method: 'GET',
    path,
    access: access.read,
    cache: 'revalidate',
    summary: paged ? `A page of ${name} records` : `All ${name} records`,
    query: (paged ? z.object({ limit: limit(), after: queryId() }) : includeDeleted(resource)) as
      | z.ZodObject
      | undefined,
    response: z.array(view),
    handler: async ({ query }, context) => {
      const page = query as { limit?: number; after?: number; includeDeleted?: boolean };
      const after: Condition | undefined = page.after === undefined ? undefined : ['id > ?', page.after];
      const select = () =>
        table.selectJson([...visibleTo(resource, context.caller, page), after], { orderBy, limit: page.limit });
      return respondWith(resource, context, page.includeDeleted ? 'all' : 'list', select, rows => {
        if (rows.length === 0 && !paged) throw problem('not_found');
        return Representation.ofList(rows.map(({ json }) => json as string));
      });
    },
  });
}
