import { type Condition, preparedStatement, where } from '../lib/postgres/statement.ts';
import type { ControlDatabase } from './database.ts';
import type { Scope } from './scopes.ts';
import { controlReads, type TenantRequest } from './tenant-queues.ts';

/** A caller who asks for users or their names. */
export interface PeopleReader {
  readonly userId: number;
  readonly entityId: number | null;
  readonly entitySince: string | null;
  readonly scope: Scope;
  readonly permissions: ReadonlySet<string>;
}

/**
 * Returns the conditions for the users of a tenant that a caller may see, in lists, single
 * records and as names beside other records: with scope `All` and `users.read`, all of them;
 * otherwise the caller, and the users of the own entity.
 */
export function usersVisibleTo(
  tenantId: number,
  { userId, entityId, entitySince, scope, permissions }: PeopleReader,
): Condition[] {
  const ofTenant: Condition = ['tenant_id = ?', tenantId];
  if (scope === 'All' && permissions.has('users.read')) return [ofTenant];

  return [
    ofTenant,
    ['(id = ? or entity_id = ? and entity_since = ?)', userId, entityId ?? 0, entitySince],
  ];
}

/**
 * Returns a function that finds the names of users of one tenant by their ids. Ids of other
 * tenants are not found, nor are those whose names the reader may not know.
 */
export function userNamesOf(
  control: ControlDatabase,
  request: TenantRequest,
  reader: PeopleReader,
): (ids: readonly number[]) => Promise<ReadonlyMap<number, string>> {
  return async ids => {
    const conditions: Condition[] = [
      ...usersVisibleTo(request.tenant.id, reader),
      ['id = any (?::bigint[])', ids],
    ];
    const values: unknown[] = [];
    const text = `select id, first_name, last_name from users${where(conditions, values)}`;
    const rows = await controlReads(control, request).read(preparedStatement(text, values));

    return new Map(rows.map(row => [Number(row.id), `${row.first_name} ${row.last_name}`.trim()]));
  };
}
