import type { Prepare } from '../../connections/tenant-driver.ts';
import { pascalCase, toRow } from '../../runtime/casing.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import { writeRecord } from './resource-access.ts';
import { changeProblems, documentation, hrefOf, type ResourceDefinition } from './resource-definition.ts';

/** POST of the collection: creates a record, which gets its audit entry from a trigger of the database. */
export function createRoute(resource: ResourceDefinition): TenantRoute {
  const { name, path, key, access, table, view, create, example, scopedBy, validate } = resource;
  return defineRoute({
    ...documentation(resource),
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
      if (scopedBy) requireScopeAll(context.caller); // the scope Self refers to one of these records
      const row = toRow(body);
      const validated: Prepare = async transaction => {
        await validate?.(row, transaction.em, {});
        return table.insert(row);
      };
      const [created] = await writeRecord(resource, context, validate ? validated : table.insert(row), body);
      return created;
    },
  });
}
