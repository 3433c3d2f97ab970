import type { EntityClass, EntityManager } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { camelCase, pascalCase, snakeCase, toRow } from '../casing.ts';
import type { TenantTransaction } from '../connections/tenant-transaction.ts';
import { type Problem, problem } from '../errors.ts';
import { flag, limit, queryId } from '../http/fields.ts';
import { pathId, type RouteInput } from '../http/route.ts';
import { type Condition, type RowValues, type Statement, TableStatements } from '../postgres/table-statements.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { Caller, RequestContext } from '../tenancy/request-context.ts';
import { byCode } from './record.ts';
import type { ResourceOptions } from './resource-options.ts';

export interface Resource {
  readonly name: string;
  readonly path: string;
  readonly entity: EntityClass<object>;
  readonly routes: TenantRoute[];
}

type Params = RouteInput<never>['params'];

/**
 * The REST routes of one table: list, read, look-up by code, create, update, delete. Every change writes its audit entry,
 * in the database.
 */
export function defineResource<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
  Update extends z.ZodObject = Create,
>(options: ResourceOptions<Row, View, Create, Update>): Resource {
  const { name, path, key, lookup, access, onMissing: missing, softDelete, scopedBy, paged } = options;
  // From here on a row is an object with properties; that view, contracts and entity agree, the types have shown.
  const entity = options.entity as EntityClass<object>;
  const orderBy = options.orderBy as Record<string, 'asc' | 'desc'>;
  const ready = options.validate as
    | ((record: RowValues, em: EntityManager, before: RowValues) => Promise<void>)
    | undefined;
  const view: z.ZodObject = options.view.meta({ title: name });
  const create: z.ZodObject = options.create;
  const partial: z.ZodObject | undefined = options.update;
  const table = new TableStatements(entity, view);
  const settable = Object.keys((partial ?? create).shape).map(camelCase);
  /** What everybody sees alike and no other table has a part in, is kept in memory. */
  const kept = !scopedBy;
  const keyPath = 'id' in key ? `${path}/:id` : `${path}/code/:code`;
  const common = { tag: name, description: options.description };
  const reading = { ...common, method: 'GET', access: access.read, cache: 'revalidate' } as const;
  const includeDeleted = softDelete ? z.object({ includeDeleted: flag() }) : undefined;

  /** What the caller may see of what the query asks for. */
  const visible = (caller: Caller, query: { includeDeleted?: boolean } = {}): (Condition | undefined)[] => [
    softDelete && !query.includeDeleted ? ['not is_deleted'] : undefined,
    scopedBy && caller.scope === 'Self' ? [`${snakeCase(scopedBy)} = ?`, caller.entityId ?? 0] : undefined,
  ];

  /** The condition for the record that a path or a body names; undefined when no record can have that key. */
  const keyed = (params: Params, body: Record<string, unknown> = {}): Condition | undefined => {
    if ('code' in key) return byCode(key.code, params.code ?? body[pascalCase(key.code)]);
    const id = pathId(params.id, key.id);
    return id === undefined ? undefined : ['id = ?', id];
  };

  /** Answers from memory where that is right, else from the rows of the statement. */
  const answer = async (
    context: RequestContext,
    answerKey: string,
    rowsOf: () => Statement,
    toAnswer: (rows: RowValues[]) => unknown,
  ) =>
    (kept ? await context.cached(name, answerKey, rowsOf, toAnswer) : toAnswer(await context.read(rowsOf()))) as never;

  const write = (context: RequestContext, prepare: (transaction: TenantTransaction) => Promise<Statement>) =>
    context.write(prepare, kept ? name : undefined);

  const list = defineRoute({
    ...reading,
    path,
    summary: paged ? `A page of ${name} records` : `All ${name} records`,
    query: (paged ? z.object({ limit: limit(), after: queryId() }) : includeDeleted) as z.ZodObject | undefined,
    response: z.array(view),
    handler: async ({ query }, context) => {
      const page = query as { limit?: number; after?: number; includeDeleted?: boolean };
      const after: Condition | undefined = page.after === undefined ? undefined : ['id > ?', page.after];
      const rowsOf = () => table.select([...visible(context.caller, page), after], { orderBy, limit: page.limit });
      return answer(context, page.includeDeleted ? 'all' : 'list', rowsOf, rows => {
        if (rows.length === 0 && !paged) throw problem('not_found');
        return rows;
      });
    },
  });

  const read = (readPath: string, summary: string, find: (params: Params) => Condition | undefined) =>
    defineRoute({
      ...reading,
      path: readPath,
      summary,
      query: includeDeleted as z.ZodObject | undefined,
      response: view,
      handler: async ({ params, query }, context) => {
        const condition = find(params);
        if (!condition) throw problem('not_found');
        const rowsOf = () => table.select([condition, ...visible(context.caller, query)]);
        const answerKey = `${query.includeDeleted ? 'any ' : ''}${condition.join(' ')}`;
        return answer(context, answerKey, rowsOf, ([row]) => {
          if (!row) throw problem('not_found');
          return row;
        });
      },
    });

  const add = defineRoute({
    ...common,
    method: 'POST',
    path,
    access: access.write,
    summary: `Create one ${name} record`,
    body: create,
    example: options.example,
    response: view,
    status: 201,
    location: record =>
      'id' in key ? `${path}/${record.Id}` : `${path}/code/${encodeURIComponent(String(record[pascalCase(key.code)]))}`,
    handler: async ({ body }, context) => {
      if (scopedBy) requireAll(context.caller);
      const [created] = await write(context, async transaction => {
        const row = toRow(body);
        if (ready) await ready(row, transaction.em, {});
        return table.insert(row);
      });
      return created as never;
    },
  });

  const change = defineRoute({
    ...common,
    method: 'PUT',
    path: 'id' in key ? keyPath : path,
    access: access.write,
    summary: partial ? `Change one ${name} record: the fields that are sent` : `Replace one ${name} record`,
    body: partial ?? create,
    example: options.example,
    response: view,
    handler: async ({ body, params }, context) => {
      if (partial && Object.keys(body).length === 0) throw nothingSent(partial);
      const changes = toRow(body);
      if ('code' in key) delete changes[key.code]; // the stored spelling stays
      const [changed] = await write(context, async transaction => {
        const condition = keyed(params, body);
        const mine = condition && [condition, ...visible(context.caller)];
        const [before] = mine ? await transaction.query(table.lock(mine)) : [];
        if (!mine || !before) throw problem(missing);
        const row = { ...before, ...changes };
        if (ready) await ready(row, transaction.em, before);
        return table.update(pick(row, settable), mine); // always the same columns: one statement to prepare
      });
      return changed as never;
    },
  });

  const remove = defineRoute({
    ...common,
    method: 'DELETE',
    path: keyPath,
    access: access.write,
    summary: softDelete ? `Mark one ${name} record as deleted` : `Delete one ${name} record`,
    handler: async ({ params }, context) => {
      if (scopedBy) requireAll(context.caller);
      const id = 'id' in key ? pathId(params.id, key.id) : undefined;
      if (id !== undefined && (await options.isReferenced?.(id, context))) throw problem('in_use');
      const condition = keyed(params);
      if (!condition) throw problem(missing);
      const live = [condition, ...visible(context.caller)];
      const removed = await write(context, async () =>
        softDelete ? table.update({ isDeleted: true, deletedAt: new Date() }, live) : table.delete(live),
      );
      if (removed.length === 0) throw problem(missing);
    },
  });

  const routes = [...(options.extraRoutes ?? []), list];
  if ('id' in key) routes.push(read(keyPath, `One ${name} record by its id`, params => keyed(params)));
  if (lookup) {
    const { property, param } = lookup;
    routes.push(
      read(`${path}/code/:${param}`, `One ${name} record by its code`, params => byCode(property, params[param])),
    );
  }
  return { name, path, entity, routes: [...routes, add, change, remove] };
}

function pick(row: RowValues, properties: string[]): RowValues {
  return Object.fromEntries(properties.map(property => [property, row[property]]));
}

/** Creating and deleting what scopes are measured by is for callers who reach all of it. */
function requireAll(caller: Caller): void {
  if (caller.scope !== 'All') throw problem('forbidden', { detail: 'This needs the scope All.' });
}

function nothingSent(contract: z.ZodObject): Problem {
  const names = Object.keys(contract.shape);
  const message = `at least one of ${names.join(', ')} is needed`;
  return problem('validation_failed', { errors: Object.fromEntries(names.map(name => [name, [message]])) });
}
