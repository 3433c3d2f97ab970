import type { QueryControl } from '../control/database.ts';
import { isManager } from '../control/managers.ts';
import { problem } from '../lib/problems.ts';
import type { Caller } from './caller.ts';
import { permissionMissing } from './define-route.ts';
import type { RequestContext } from './request-context.ts';

const managerById = `
  select r.permissions from users u join roles r on r.id = u.role_id
   where u.id = $1 and u.tenant_id = $2 and ${isManager}`;

/**
 * Requires the caller to be an active user with scope All and `users.manage`, as the control
 * database has them now: the caches may be a second old. Every way to add or change a user or
 * role calls it.
 * @returns the permissions that the caller may grant (`requireMayGrant`): the permissions of
 *   the token that the caller's role still has
 * @param detail of the problem `wrong_state`, if the change itself has taken the rights away
 * @throws {Problem} `forbidden`
 */
export async function requireManager(
  query: QueryControl,
  { caller, tenant }: Pick<RequestContext, 'caller' | 'tenant'>,
  detail?: string,
): Promise<ReadonlySet<string>> {
  requireScopeAll(caller);
  const [row] = await query<{ permissions: string[] }>('manager_by_id', managerById, [
    caller.userId,
    tenant.id,
  ]);
  if (!row) {
    throw detail === undefined
      ? permissionMissing('users.manage')
      : problem('wrong_state', { detail });
  }
  return new Set(row.permissions.filter(permission => caller.permissions.has(permission)));
}

/**
 * @throws {Problem} `forbidden` for a caller of scope Self, who reads and changes only what
 *   belongs to one entity
 */
export function requireScopeAll({ scope }: Caller): void {
  if (scope !== 'All') throw problem('forbidden', { detail: 'This needs the scope All.' });
}
