import { problem } from '../../errors.ts';
import type { RouteInput } from '../../http/route.ts';
import type { RowValues } from '../../postgres/statement.ts';
import { camelCase, toRow } from '../../runtime/casing.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { keyCondition, lockRecord, visibleTo, writeRecord } from './resource-access.ts';
import type { ResourceDefinition } from './resource-definition.ts';

/**
 * Changes the fields of one record that a body has, and returns the record. The path names the record, or a code in the
 * body.
 * @throws {Problem} `onMissing`, `precondition_failed`, `duplicate`, and those of `validate`
 */
export async function updateRecord(
  resource: ResourceDefinition,
  { body, params, precondition }: Pick<RouteInput<Record<string, unknown>>, 'body' | 'params' | 'precondition'>,
  context: RequestContext,
): Promise<RowValues | undefined> {
  const { key, table, create, update, onMissing, validate } = resource;
  const properties = Object.keys((update ?? create).shape).map(camelCase);
  const changes = toRow(body);
  if ('code' in key) delete changes[key.code]; // the stored spelling stays
  const [updated] = await writeRecord(
    resource,
    context,
    async transaction => {
      const condition = keyCondition(resource, params, body);
      if (!condition) throw problem(onMissing);
      const conditions = [condition, ...visibleTo(resource, context.caller)];
      const before = await lockRecord(resource, transaction, conditions, precondition);
      const row = { ...before, ...changes };
      await validate?.(row, transaction.em, before);
      return table.update(pick(row, properties), conditions); // always the same columns: one prepared statement
    },
    body,
  );
  return updated;
}

function pick(row: RowValues, properties: string[]): RowValues {
  return Object.fromEntries(properties.map(property => [property, row[property]]));
}
