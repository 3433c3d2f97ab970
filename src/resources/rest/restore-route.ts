import { problem } from '../../errors.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { keyCondition, lockRecord, writeRecord } from './resource-access.ts';
import { changeProblems, documentation, type ResourceDefinition } from './resource-definition.ts';

/** POST …/restore of one record: removes the mark that DELETE set. A record without the mark stays as it is. */
export function restoreRoute(resource: ResourceDefinition): TenantRoute {
  const { name, recordPath, access, table, view, onMissing } = resource;
  return defineRoute({
    ...documentation(resource),
    method: 'POST',
    path: `${recordPath}/restore`,
    access: access.write,
    summary: `Restore one ${name} record that is marked as deleted`,
    response: view,
    hasTag: true,
    takesIdempotencyKey: true,
    problems: changeProblems(resource, 'restore'),
    handler: async ({ params }, context) => {
      const condition = keyCondition(resource, params);
      if (!condition) throw problem(onMissing);
      const [restored] = await writeRecord(resource, context, async transaction => {
        await lockRecord(resource, transaction, [condition]);
        return table.update({ isDeleted: false, deletedAt: null }, [condition]);
      });
      return restored;
    },
  });
}
