import type { z } from 'zod';
import { type Problem, problem } from '../../errors.ts';
import type { FieldError } from '../../runtime/field-error.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { documentation, type ResourceDefinition } from './resource-definition.ts';
import { updateRecord } from './update-record.ts';

/** PUT of one record: replaces all fields, or changes the fields that are sent if the resource defines `update`. */
export function updateRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, recordPath, key, access, view, create, update, example } = resource;
  return defineRoute({
    ...documentation(resource),
    method: 'PUT',
    path: 'id' in key ? recordPath : path,
    access: access.write,
    summary: update ? `Change one ${name} record: the fields that are sent` : `Replace one ${name} record`,
    body: update ?? create,
    example,
    response: view,
    hasTag: true,
    takesIfMatch: true,
    handler: (input, context) => {
      if (update && Object.keys(input.body).length === 0) throw noFieldSent(update);
      return updateRecord(resource, input, context);
    },
  });
}

function noFieldSent(contract: z.ZodObject): Problem {
  const names = Object.keys(contract.shape);
  const message = `at least one of ${names.join(', ')} is needed`;
  const error: FieldError = { message, code: 'required' };
  return problem('validation_failed', { errors: Object.fromEntries(names.map(name => [name, [error]])) });
}
