import { problem } from '../../errors.ts';
import { pathId } from '../../http/route.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import { keyCondition, lockRecord, visibleTo, writeRecord } from './resource-access.ts';
import { changeProblems, documentation, type ResourceDefinition } from './resource-definition.ts';

/** DELETE of one record: removes the row, or marks it as deleted. */
export function deleteRoute(resource: ResourceDefinition): TenantRoute {
  const { name, recordPath, key, access, table, scopedBy, softDelete, onMissing, isReferenced } = resource;
  return defineRoute({
    ...documentation(resource),
    method: 'DELETE',
    path: recordPath,
    access: access.write,
    summary: softDelete ? `Mark one ${name} record as deleted` : `Delete one ${name} record`,
    takesIfMatch: true,
    problems: changeProblems(resource, 'delete'),
    handler: async ({ params, precondition }, context) => {
      if (scopedBy) requireScopeAll(context.caller); // the scope Self refers to one of these records
      const id = 'id' in key ? pathId(params.id, key.id) : undefined;
      if (id !== undefined && (await isReferenced?.(id, context))) throw problem('in_use');
      const condition = keyCondition(resource, params);
      if (!condition) throw problem(onMissing);
      const conditions = [condition, ...visibleTo(resource, context.caller)];
      await writeRecord(resource, context, async transaction => {
        await lockRecord(resource, transaction, conditions, precondition);
        return softDelete
          ? table.update({ isDeleted: true, deletedAt: new Date() }, conditions)
          : table.delete(conditions);
      });
    },
  });
}
