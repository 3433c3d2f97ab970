import { z } from 'zod';
import { flag, limit, queryId } from '../../../lib/http/request/fields.ts';
import { listContract } from '../../../lib/http/request/list-parameters/list-contract.ts';
import { Representation } from '../../../lib/http/response/representation.ts';
import type { Condition } from '../../../lib/postgres/statement.ts';
import { type ProblemCode, problem } from '../../../lib/problems.ts';
import { camelCase } from '../../../lib/runtime/casing.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import { readPage } from '../../../tenancy/lists/read-page.ts';
import { codeCondition } from '../record.ts';
import {
  keyCondition,
  listedRecords,
  ownText,
  type PathParams,
  recordsVisibleTo,
  requireReadable,
  respondWith,
} from './resource-access.ts';
import { commonOf, type ResourceDefinition } from './resource-definition.ts';

/** GET of the collection: a page of records, or all of them. */
export function listRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, access, table, view, orderBy, paged } = resource;
  const query = paged ? z.object({ limit: limit(), after: queryId() }) : includeDeleted(resource);

  return defineRoute({
    ...commonOf(resource),
    method: 'GET',
    path,
    access: access.read,
    cache: 'revalidate',
    summary: paged ? `A page of ${name} records` : `All ${name} records`,
    problems: readProblems(resource),
    query: query as z.ZodObject | undefined,
    list: listOf(resource, query),
    response: z.array(view),
    handler: async ({ query, list }, context) => {
      requireReadable(resource, context.caller);
      if (list) {
        const conditions = listedRecords(resource, context.caller, query, list);
        const toResponse = ownText(resource, context.caller);
        return readPage(list, {
          table,
          conditions,
          reads: context,
          ...(toResponse && { toResponse }),
        });
      }

      const page = query as { limit?: number; after?: number; includeDeleted?: boolean };
      const after: Condition | undefined =
        page.after === undefined ? undefined : ['id > ?', page.after];
      const select = () =>
        table.selectJson([...recordsVisibleTo(resource, context.caller, page), after], {
          orderBy,
          limit: page.limit,
        });

      return respondWith(resource, context, page.includeDeleted ? 'all' : 'list', select, rows => {
        if (rows.length === 0 && !paged) throw problem('not_found');
        return Representation.ofRows(rows);
      });
    },
  });
}

function listOf(
  { view, key, orderBy, search, computed, volatile, longTexts }: ResourceDefinition,
  query?: z.ZodObject,
) {
  const fields = Object.keys(view.shape);
  const fieldOf = (property: string) =>
    fields.find(field => camelCase(field) === property) ?? property;

  return listContract({
    view,
    query,
    order: Object.fromEntries(
      Object.entries(orderBy).map(([property, direction]) => [fieldOf(property), direction]),
    ),
    key: 'id' in key ? 'Id' : fieldOf(key.code),
    search: search.map(fieldOf),
    computed: computed?.map(fieldOf),
    longTexts: longTexts?.map(fieldOf),
    includes: ['etag'],
    volatile,
  });
}

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
    routes.push(
      readRoute(resource, `${path}/code/:${param}`, `One ${name} record by its code`, byCode),
    );
  }

  return routes;
}

function readRoute(
  resource: ResourceDefinition,
  path: string,
  summary: string,
  find: (params: PathParams) => Condition | undefined,
): TenantRoute {
  const { access, table, view, volatile } = resource;
  return defineRoute({
    ...commonOf(resource),
    method: 'GET',
    path,
    access: access.read,
    cache: 'revalidate',
    summary,
    problems: readProblems(resource),
    query: includeDeleted(resource) as z.ZodObject | undefined,
    response: view,
    handler: async ({ params, query }, context) => {
      requireReadable(resource, context.caller);
      const condition = find(params);
      if (!condition) throw problem('not_found');

      const select = () =>
        table.selectRecord([condition, ...recordsVisibleTo(resource, context.caller, query)]);
      const cacheKey = `${query.includeDeleted ? 'any ' : ''}${condition.join(' ')}`;

      return respondWith(resource, context, cacheKey, select, ([row]) => {
        if (!row) throw problem('not_found');
        return Representation.ofText(row.json, volatile);
      });
    },
  });
}

/** The problems of a read that no other read has, for the documentation. */
function readProblems({ access }: ResourceDefinition): ProblemCode[] {
  return access.readOfSelf ? ['forbidden'] : [];
}

/**
 * The query parameter `includeDeleted`, for resources whose DELETE only marks a record as
 * deleted.
 */
function includeDeleted({ softDelete }: ResourceDefinition) {
  return softDelete ? z.object({ includeDeleted: flag() }) : undefined;
}
