import type { QueryControl } from './database.ts';

/**
 * SQL condition: the user `u`, a person or a program with the role `r`, can manage the people of
 * the tenant now.
 */
export const isManager = `
  u.disabled_at is null and u.confirmed_at is not null and u.scope = 'All' and 'users.manage' = any (r.permissions)`;

const managers = `
  select from users u join roles r on r.id = u.role_id where u.tenant_id = $1 and u.kind = 'person' and ${isManager} limit 1`;

/** True if a person can manage the people of a tenant. */
export async function hasManager(query: QueryControl, tenantId: number): Promise<boolean> {
  return (await query('has_manager', managers, [tenantId])).length > 0;
}
