import { preparedStatement } from '../lib/postgres/statement.ts';
import type { ControlDatabase } from './database.ts';
import { controlReads, type TenantRequest } from './tenant-queues.ts';

/**
 * A caller who asks for names. A caller who may read users gets all names of the tenant; any
 * other gets the own name, and those of the users of the own entity.
 */
export interface NameReader {
  readonly userId: number;
  readonly entityId: number | null;
  readonly permissions: ReadonlySet<string>;
}

const selectNames = `
  select id, first_name, last_name from users
   where tenant_id = $1 and id = any ($2::bigint[]) and ($3 or id = $4 or entity_id = $5)`;

/**
 * Returns a function that finds the names of users of one tenant by their ids. Ids of other
 * tenants are not found, nor are those whose names the reader may not know.
 */
export function userNamesOf(
  control: ControlDatabase,
  request: TenantRequest,
  { userId, entityId, permissions }: NameReader,
): (ids: readonly number[]) => Promise<ReadonlyMap<number, string>> {
  const mayReadAll = permissions.has('users.read');

  return async ids => {
    const statement = preparedStatement(selectNames, [
      request.tenant.id,
      ids,
      mayReadAll,
      userId,
      entityId,
    ]);
    const rows = await controlReads(control, request).read(statement);

    return new Map(rows.map(row => [Number(row.id), `${row.first_name} ${row.last_name}`.trim()]));
  };
}
