import { type EntityClass, type EntityManager, LockMode, type QueryOrderMap } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { type Problem, problem } from '../errors.ts';
import { flag, limit, queryId } from '../http/fields.ts';
import { pathId, type RouteInput } from '../http/route.ts';
import type { Caller } from '../tenancy/context.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import { all, byCode, pascalCase, renderer, toRow } from './record.ts';
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
  const { name, path, key, lookup, access, missing, softDelete, scopedBy, paged } = options;
  // From here on a row is an object with properties; that view, contracts and entity agree, the types have shown.
  const entity = options.entity as EntityClass<object>;
  const orderBy = options.orderBy as QueryOrderMap<object>;
  const ready = options.ready as ((record: object, em: EntityManager, before: object) => Promise<void>) | undefined;
  const view: z.ZodObject = options.view.meta({ title: name });
  const create: z.ZodObject = options.create;
  const partial: z.ZodObject | undefined = options.update;
  const render = renderer(view);
  const keyPath = 'id' in key ? `${path}/:id` : `${path}/code/:code`;
  const common = { tag: name, description: options.description };
  const reading = { ...common, method: 'GET', access: access.read, cache: 'revalidate' } as const;
  const includeDeleted = softDelete ? z.object({ includeDeleted: flag() }) : undefined;

  /** What the caller may see of what the query asks for. */
  const visible = (caller: Caller, query: { includeDeleted?: boolean } = {}): object => ({
    ...(softDelete && !query.includeDeleted ? { isDeleted: false } : {}),
    ...(scopedBy && caller.scope === 'Self' ? { [scopedBy]: caller.entityId ?? 0 } : {}),
  });

  /** The condition for the record that a path or a body names; undefined when no record can have that key. */
  const keyed = (params: Params, body: Record<string, unknown> = {}): object | undefined => {
    if ('code' in key) return byCode(key.code, params.code ?? body[pascalCase(key.code)]);
    const id = pathId(params.id, key.id);
    return id === undefined ? undefined : { id };
  };

  const stored = async (row: object, em: EntityManager, before: object = {}): Promise<Record<string, unknown>> => {
    await ready?.(row, em, before);
    await em.flush();
    if (options.computed) await em.refresh(row);
    return render(row);
  };

  const list = defineRoute({
    ...reading,
    path,
    summary: paged ? `A page of ${name} records` : `All ${name} records`,
    query: (paged ? z.object({ limit: limit(), after: queryId() }) : includeDeleted) as z.ZodObject | undefined,
    response: z.array(view),
    handler: async ({ query }, context) => {
      const page = query as { limit?: number; after?: number; includeDeleted?: boolean };
      const where = all(
        visible(context.caller, page),
        page.after === undefined ? undefined : { id: { $gt: page.after } },
      );
      const em = await context.em();
      const rows = await em.find(entity, where, {
        orderBy,
        ...(page.limit === undefined ? {} : { limit: page.limit }),
      });
      if (rows.length === 0 && !paged) throw problem('not_found');
      return rows.map(render);
    },
  });

  const read = (readPath: string, summary: string, find: (params: Params) => object | undefined) =>
    defineRoute({
      ...reading,
      path: readPath,
      summary,
      query: includeDeleted as z.ZodObject | undefined,
      response: view,
      handler: async ({ params, query }, context) => {
        const where = find(params);
        const row = where && (await (await context.em()).findOne(entity, all(where, visible(context.caller, query))));
        if (!row) throw problem('not_found');
        return render(row);
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
      return context.write(em => stored(em.create(entity, toRow(body)), em));
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
      return context.write(async em => {
        const where = keyed(params, body);
        const lock = { lockMode: LockMode.PESSIMISTIC_WRITE } as const;
        const row = where && (await em.findOne(entity, all(where, visible(context.caller)), lock));
        if (!row) throw problem(missing);
        const before = { ...row };
        return stored(Object.assign(row, changes), em, before);
      });
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
      if (id !== undefined && (await options.inUse?.(id, context))) throw problem('in_use');
      const changed = await context.write(async em => {
        const where = keyed(params);
        if (!where) return 0;
        const live = all(where, visible(context.caller));
        if (!softDelete) return em.nativeDelete(entity, live);
        return em.nativeUpdate(entity, live, { isDeleted: true, deletedAt: new Date() } as never);
      });
      if (changed === 0) throw problem(missing);
    },
  });

  const routes = [...(options.more ?? []), list];
  if ('id' in key) routes.push(read(keyPath, `One ${name} record by its id`, params => keyed(params)));
  if (lookup) {
    const { property, param } = lookup;
    routes.push(
      read(`${path}/code/:${param}`, `One ${name} record by its code`, params => byCode(property, params[param])),
    );
  }
  return { name, path, entity, routes: [...routes, add, change, remove] };
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
