import {
  type EntityClass,
  type EntityManager,
  LockMode,
  type QueryOrderMap,
  type RequiredEntityData,
} from '@mikro-orm/postgresql';
import { z } from 'zod';
import type { Permission } from '../control/permissions.ts';
import { problem } from '../errors.ts';
import { camelCase } from '../http/read-fields.ts';
import { pathId } from '../http/route.ts';
import type { RequestContext } from '../tenancy/context.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';

/** What is stored, as it is written on the wire: names in PascalCase, moments as ISO-8601. */
type Stored<Row> = {
  [Key in keyof Row & string as Capitalize<Key>]: Row[Key] extends Date
    ? string
    : Row[Key] extends Date | null | undefined
      ? string | null
      : Row[Key];
};

/** A contract or view that the entity does not agree with is an error at compile time. */
type Reads<Row, View extends z.ZodObject> = Stored<Row> extends z.input<View> ? View : never;
type Writes<Row, Contract extends z.ZodObject> =
  z.output<Contract> extends Partial<{ [Key in keyof Row & string as Capitalize<Key>]: Row[Key] | undefined }>
    ? Contract
    : never;

interface ResourceOptions<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
  Update extends z.ZodObject,
> {
  /** The name in documentation and audit entries. */
  name: string;
  path: string;
  entity: EntityClass<Row>;
  /** Largest id that the column can hold. */
  maxId: number;
  access: { read: Permission | 'user'; write: Permission };
  orderBy: QueryOrderMap<Row>;
  /** What leaves, in this order; every name is a property of the entity. */
  view: Reads<Row, View>;
  /** What POST takes. */
  create: Writes<Row, Create>;
  /** What PUT takes when it changes only what is sent; without it, PUT takes all that POST does. */
  update?: Writes<Row, Update>;
  /** How PUT and DELETE answer when there is no such record. */
  missing: 'not_found' | 'unknown_record';
  /** The check against the data, before a record is written: uniqueness, references. Throws a problem. */
  ready?: (record: Partial<Row>, em: EntityManager) => Promise<void>;
}

export interface Resource {
  readonly name: string;
  readonly path: string;
  readonly entity: EntityClass<object>;
  readonly routes: TenantRoute[];
}

/** The REST routes of one table: list, read, create, update, delete. Every change writes its audit entry, in the database. */
export function defineResource<
  Row extends { id: number },
  View extends z.ZodObject,
  Create extends z.ZodObject,
  Update extends z.ZodObject = Create,
>(options: ResourceOptions<Row, View, Create, Update>): Resource {
  const { name, path, entity, maxId, access, orderBy, missing, ready } = options;
  const view: z.ZodObject = options.view;
  const create: z.ZodObject = options.create;
  const partial: z.ZodObject | undefined = options.update;
  const byId = `${path}/:id`;
  const render = renderer<Row>(Object.keys(view.shape));
  /** An id that cannot be one is an id that does not exist. */
  const idOf = (params: Readonly<Record<string, string>>): Row['id'] => pathId(params.id, maxId) ?? 0;
  const where = (id: number) => ({ id }) as never;

  const list = defineRoute({
    method: 'GET',
    path,
    access: access.read,
    summary: `All records of ${name}`,
    response: z.array(view),
    cache: 'revalidate',
    handler: async (_input, context) => {
      const rows = await (await context.em()).findAll(entity, { orderBy });
      if (rows.length === 0) throw problem('not_found');
      return rows.map(render);
    },
  });

  const read = defineRoute({
    method: 'GET',
    path: byId,
    access: access.read,
    summary: `One record of ${name}`,
    response: view,
    cache: 'revalidate',
    handler: async ({ params }, context) => {
      const id = idOf(params);
      const row = id === 0 ? null : await (await context.em()).findOne(entity, where(id));
      if (!row) throw problem('not_found');
      return render(row);
    },
  });

  const add = defineRoute({
    method: 'POST',
    path,
    access: access.write,
    summary: `Create a record of ${name}`,
    body: create,
    response: view,
    status: 201,
    location: record => `${path}/${record.Id}`,
    handler: ({ body }, context) =>
      context.write(async em => {
        const record = toRow<Row>(body);
        await ready?.(record, em);
        const row = em.create(entity, record as unknown as RequiredEntityData<Row>);
        await em.flush();
        return render(row);
      }),
  });

  const change = defineRoute({
    method: 'PUT',
    path: byId,
    access: access.write,
    summary: partial ? `Change the fields sent of a record of ${name}` : `Replace a record of ${name}`,
    body: partial ?? create,
    response: view,
    handler: async ({ body, params }, context) => {
      if (partial && Object.keys(body).length === 0) throw nothingSent(partial);
      return context.write(async em => {
        const row = await em.findOne(entity, where(idOf(params)), { lockMode: LockMode.PESSIMISTIC_WRITE });
        if (!row) throw problem(missing);
        const record = toRow<Row>(body);
        await ready?.({ ...record, id: row.id }, em);
        Object.assign(row, record);
        await em.flush();
        return render(row);
      });
    },
  });

  const remove = defineRoute({
    method: 'DELETE',
    path: byId,
    access: access.write,
    summary: `Delete a record of ${name}`,
    handler: ({ params }, context) => deleteRow(entity, idOf(params), missing, context),
  });

  return { name, path, entity: entity as EntityClass<object>, routes: [list, read, add, change, remove] };
}

async function deleteRow<Row extends object>(
  entity: EntityClass<Row>,
  id: number,
  missing: 'not_found' | 'unknown_record',
  context: RequestContext,
): Promise<undefined> {
  const deleted = id === 0 ? 0 : await context.write(em => em.nativeDelete(entity, { id } as never));
  if (deleted === 0) throw problem(missing);
}

function nothingSent(contract: z.ZodObject) {
  const names = Object.keys(contract.shape);
  const message = `at least one of ${names.join(', ')} is needed`;
  return problem('validation_failed', { errors: Object.fromEntries(names.map(name => [name, [message]])) });
}

/** A body's fields as properties of the entity; what was not sent is not there. */
function toRow<Row>(fields: Record<string, unknown>): Partial<Row> {
  const sent = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(sent.map(([name, value]) => [camelCase(name), value])) as Partial<Row>;
}

/** Writes exactly the named fields of a row: a new column never leaves by itself. */
function renderer<Row>(names: string[]): (row: Row) => Record<string, unknown> {
  const fields = names.map(name => [name, camelCase(name) as keyof Row] as const);
  return row => Object.fromEntries(fields.map(([name, property]) => [name, toWire(row[property])]));
}

function toWire(value: unknown): unknown {
  return value instanceof Date ? value.toISOString() : (value ?? null);
}
