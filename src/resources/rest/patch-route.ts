import type { z } from 'zod';
import { pascalCase } from '../../runtime/casing.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { documentation, type ResourceDefinition } from './resource-definition.ts';
import { updateRecord } from './update-record.ts';

/**
 * PATCH of one record: a JSON merge patch (RFC 7396) of the fields of POST. The path names the record, also where PUT
 * finds it by a code in its body: such a code never changes, so it is no field of the patch.
 */
export function patchRoute(resource: ResourceDefinition): TenantRoute {
  const { name, recordPath, key, access, view, create, example } = resource;
  const body: z.ZodObject = 'code' in key ? create.omit({ [pascalCase(key.code)]: true } as never) : create;
  const [field = ''] = Object.keys(body.shape)
    .filter(each => each in example)
    .slice(-1);
  return defineRoute({
    ...documentation(resource),
    method: 'PATCH',
    path: recordPath,
    access: access.write,
    summary: `Change the fields of one ${name} record that are sent`,
    body,
    example: { [field]: example[field] },
    response: view,
    hasTag: true,
    takesIfMatch: true,
    handler: (input, context) => updateRecord(resource, input, context),
  });
}
