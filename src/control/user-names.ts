import { preparedStatement } from '../postgres/statement.ts';
import type { ControlDatabase } from './database.ts';
import { controlReads, type TenantRequest } from './tenant-queues.ts';

const selectNames = 'select id, first_name, last_name from users where tenant_id = $1 and id = any ($2::bigint[])';

/** Returns a function that finds the names of users of one tenant by their ids. Ids of other tenants are not found. */
export function userNamesOf(
  control: ControlDatabase,
  request: TenantRequest,
): (ids: readonly number[]) => Promise<ReadonlyMap<number, string>> {
  return async ids => {
    const statement = preparedStatement(selectNames, [request.tenant.id, ids]);
    const rows = await controlReads(control, request).read(statement);
    return new Map(rows.map(row => [Number(row.id), `${row.first_name} ${row.last_name}`.trim()]));
  };
}
