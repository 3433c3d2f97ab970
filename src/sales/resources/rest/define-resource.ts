import type { EntityClass } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import { databaseNow } from '../../../lib/postgres/statement.ts';
import { type Problem, problem } from '../../../lib/problems.ts';
import { pascalCase, toRow } from '../../../lib/runtime/casing.ts';
import type { FieldError } from '../../../lib/runtime/field-error.ts';
import type { Prepare } from '../../../tenancy/connections/tenant-driver.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import { requireScopeAll } from '../../../tenancy/require-manager.ts';
import { requireValid } from './check-record.ts';
import { addReferrers, inUseProblem, isInUse } from './in-use.ts';
import { listRoute, readRoutes } from './read-routes.ts';
import {
  errorsOfChange,
  errorsOfNew,
  keyCondition,
  lockRecord,
  recordsVisibleTo,
  updateRecord,
  writeRecord,
} from './resource-access.ts';
import {
  changeProblems,
  commonOf,
  createDefinition,
  hrefOf,
  type ResourceDefinition,
} from './resource-definition.ts';
import type { ResourceOptions } from './resource-options.ts';

export interface Resource {
  readonly name: string;
  readonly path: string;
  readonly entity: EntityClass<object>;
  readonly routes: TenantRoute[];
  /** The definition behind the routes, for other ways to change records. */
  readonly definition: ResourceDefinition;
}

/**
 * Defines the REST routes of one table: list, read, look up by code, create, replace and
 * delete, and where the options say so, patch and undelete. A trigger of the database writes the
 * audit entry of every change.
 * @throws when `options.entity` is not an entity of MikroORM
 */
export function defineResource<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
>(options: ResourceOptions<Row, View, Create>): Resource {
  const definition = createDefinition(options);
  const { name, path, entity, extraRoutes = [] } = definition;
  addReferrers(definition);

  const routes = [
    ...extraRoutes,
    listRoute(definition),
    ...readRoutes(definition),
    createRoute(definition),
    updateRoute(definition),
    ...(definition.takesPatch ? [patchRoute(definition)] : []),
    deleteRoute(definition),
    ...(definition.softDelete ? [undeleteRoute(definition)] : []),
  ];

  return { name, path, entity, routes, definition };
}

/**
 * POST of the collection: creates a record, which gets its audit entry from a trigger of the
 * database.
 */
function createRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, key, access, table, view, create, example } = resource;

  return defineRoute({
    ...commonOf(resource),
    method: 'POST',
    path,
    access: access.write,
    summary: `Create one ${name} record`,
    body: create,
    example,
    response: view,
    status: 201,
    hasTag: true,
    takesIdempotencyKey: true,
    problems: changeProblems(resource, 'create'),
    location: record => hrefOf(resource, record['id' in key ? 'Id' : pascalCase(key.code)]),
    handler: async ({ body }, context) => {
      if (isChangedByAll(resource)) requireScopeAll(context.caller);

      const row = toRow(body);
      const validated: Prepare = async transaction => {
        const record = { row, before: {}, errors: {} };
        await requireValid(resource, record, statement => transaction.query(statement));
        return table.insert(row);
      };

      const [created] = await writeRecord(
        resource,
        context,
        isChecked(resource) ? validated : table.insert(row),
        body,
      );
      return created;
    },
    checkValid: async (fields, context) => {
      if (isChangedByAll(resource)) requireScopeAll(context.caller);
      return errorsOfNew(resource, fields, context);
    },
  });
}

/** True if a record refers to others, or has rules, which are checked before it is written. */
function isChecked({ references, rules }: ResourceDefinition): boolean {
  return references !== undefined || rules !== undefined;
}

/**
 * True if a caller of scope `Self` may neither create nor delete records: the scope refers to
 * one of them, or they name entities beside the own one.
 */
function isChangedByAll({ scopedBy, namesEntities }: ResourceDefinition): boolean {
  return scopedBy !== undefined || namesEntities !== undefined;
}

/**
 * PUT of one record: replaces all fields, or changes the fields that are sent if the resource
 * says so.
 */
function updateRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, recordPath, key, access, view, create, putsPart, example, replacement } =
    resource;

  return defineRoute({
    ...commonOf(resource),
    method: 'PUT',
    path: 'id' in key ? recordPath : path,
    access: access.write,
    summary: putsPart
      ? `Change one ${name} record: the fields that are sent`
      : `Replace one ${name} record`,
    body: create,
    takesPart: putsPart,
    example: replacement ?? example,
    response: view,
    hasTag: true,
    takesIfMatch: true,
    problems: changeProblems(resource, 'update'),
    handler: (input, context) => {
      if (putsPart && Object.keys(input.body).length === 0) throw noFieldSent(create);
      return updateRecord(resource, input, context);
    },
    checkValid: (fields, context) => errorsOfChange(resource, fields, context),
  });
}

function noFieldSent(contract: z.ZodObject): Problem {
  const names = Object.keys(contract.shape);
  const message = `at least one of ${names.join(', ')} is needed`;
  const error: FieldError = { message, code: 'required' };
  return problem('validation_failed', {
    errors: Object.fromEntries(names.map(name => [name, [error]])),
  });
}

/** PATCH of one record: a JSON merge patch (RFC 7396) of the fields of POST. */
function patchRoute(resource: ResourceDefinition): TenantRoute {
  const { name, recordPath, access, view, create, example, replacement = example } = resource;
  const [field = ''] = Object.keys(create.shape)
    .filter(each => each in replacement)
    .slice(-1);

  return defineRoute({
    ...commonOf(resource),
    method: 'PATCH',
    path: recordPath,
    access: access.write,
    summary: `Change the fields of one ${name} record that are sent`,
    body: create,
    example: { [field]: replacement[field] },
    response: view,
    hasTag: true,
    takesIfMatch: true,
    problems: changeProblems(resource, 'update'),
    handler: (input, context) => updateRecord(resource, input, context),
    checkValid: (fields, context) => errorsOfChange(resource, fields, context),
  });
}

/** DELETE of one record: removes the row, or marks it as deleted. */
function deleteRoute(resource: ResourceDefinition): TenantRoute {
  const { name, recordPath, access, table, softDelete, onMissing, isReferenced } = resource;

  return defineRoute({
    ...commonOf(resource),
    method: 'DELETE',
    path: recordPath,
    access: access.write,
    summary: softDelete ? `Mark one ${name} record as deleted` : `Delete one ${name} record`,
    takesIfMatch: true,
    problems: changeProblems(resource, 'delete'),
    handler: async ({ params, precondition }, context) => {
      if (isChangedByAll(resource)) requireScopeAll(context.caller);

      const condition = keyCondition(resource, params);
      if (!condition) throw problem(onMissing);
      const conditions = [condition, ...recordsVisibleTo(resource, context.caller)];

      let id: unknown;
      const remove: Prepare = async transaction => {
        const record = await lockRecord(resource, transaction, conditions, precondition);
        id = record.id;
        if (await isReferenced?.(Number(id), context)) throw problem('in_use');
        return softDelete
          ? table.update({ isDeleted: true, deletedAt: databaseNow }, conditions)
          : table.delete(conditions);
      };

      try {
        await writeRecord(resource, context, remove);
      } catch (error) {
        throw isInUse(error) ? await inUseProblem(resource, id, context, error) : error;
      }
    },
  });
}

/**
 * POST …/undelete of one record: removes the mark that DELETE set. A record without the mark
 * stays as it is.
 */
function undeleteRoute(resource: ResourceDefinition): TenantRoute {
  const { name, recordPath, access, table, view, onMissing } = resource;
  return defineRoute({
    ...commonOf(resource),
    method: 'POST',
    path: `${recordPath}/undelete`,
    access: access.write,
    summary: `Undelete one ${name} record that is marked as deleted`,
    response: view,
    hasTag: true,
    takesIdempotencyKey: true,
    problems: changeProblems(resource, 'undelete'),
    handler: async ({ params }, context) => {
      const condition = keyCondition(resource, params);
      if (!condition) throw problem(onMissing);
      const [undeleted] = await writeRecord(resource, context, async transaction => {
        await lockRecord(resource, transaction, [condition]);
        return table.update({ isDeleted: false, deletedAt: null }, [condition]);
      });
      return undeleted;
    },
  });
}
