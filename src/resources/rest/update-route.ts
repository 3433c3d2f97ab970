import type { z } from 'zod';
import { type Problem, problem } from '../../errors.ts';
import type { RowValues } from '../../postgres/statement.ts';
import { camelCase, toRow } from '../../runtime/casing.ts';
import type { FieldError } from '../../runtime/field-error.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { keyCondition, lockRecord, visibleTo, writeRecord } from './resource-access.ts';
import { documentation, type ResourceDefinition } from './resource-definition.ts';

/** PUT of one record: replaces all fields, or changes the fields that are sent if the resource defines `update`. */
export function updateRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, recordPath, key, access, table, view, create, update, example, onMissing, validate } = resource;
  const contract = update ?? create;
  const properties = Object.keys(contract.shape).map(camelCase);
  return defineRoute({
    ...documentation(resource),
    method: 'PUT',
    path: 'id' in key ? recordPath : path,
    access: access.write,
    summary: update ? `Change one ${name} record: the fields that are sent` : `Replace one ${name} record`,
    body: contract,
    example,
    response: view,
    hasTag: true,
    takesIfMatch: true,
    handler: async ({ body, params, ifMatch }, context) => {
      if (update && Object.keys(body).length === 0) throw noFieldSent(update);
      const changes = toRow(body);
      if ('code' in key) delete changes[key.code]; // the stored spelling stays
      const [updated] = await writeRecord(
        resource,
        context,
        async transaction => {
          const condition = keyCondition(resource, params, body);
          if (!condition) throw problem(onMissing);
          const conditions = [condition, ...visibleTo(resource, context.caller)];
          const before = await lockRecord(resource, transaction, conditions, ifMatch);
          const row = { ...before, ...changes };
          await validate?.(row, transaction.em, before);
          return table.update(pick(row, properties), conditions); // always the same columns: one prepared statement
        },
        body,
      );
      return updated;
    },
  });
}

function pick(row: RowValues, properties: string[]): RowValues {
  return Object.fromEntries(properties.map(property => [property, row[property]]));
}

function noFieldSent(contract: z.ZodObject): Problem {
  const names = Object.keys(contract.shape);
  const message = `at least one of ${names.join(', ')} is needed`;
  const error: FieldError = { message, code: 'required' };
  return problem('validation_failed', { errors: Object.fromEntries(names.map(name => [name, [error]])) });
}
