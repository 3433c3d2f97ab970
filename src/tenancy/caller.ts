import type { Directory } from '../control/directory.ts';
import type { Scope } from '../control/scopes.ts';

/** The authenticated caller, as verified by the access token and the control database. */
export interface Caller {
  readonly sessionId: string;
  /** `jti` of the access token. */
  readonly tokenId: string;
  readonly userId: number;
  readonly userGuid: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly role: string;
  readonly entityId: number | null;
  readonly entityType: 'supplier' | 'customer' | null;
  readonly scope: Scope;
  readonly permissions: ReadonlySet<string>;
}

/** False once the tenant is not active, the session is revoked, or the user has fewer rights than at the beginning. */
export async function isCallerCurrent(
  { sessionId, userId, entityId, scope, permissions }: Caller,
  tenantGuid: string,
  directory: Pick<Directory, 'tenant' | 'session' | 'user' | 'role'>,
): Promise<boolean> {
  const tenant = await directory.tenant(tenantGuid);
  const session = sessionId === '' ? undefined : await directory.session(sessionId); // a legacy token has none
  const user = await directory.user(userId);
  const role = user && (await directory.role(user.roleId));
  if (tenant?.status !== 'active' || !user || user.disabled || !role) return false;
  if (sessionId !== '' && (!session || session.revoked)) return false;
  if (user.scope !== scope || user.entityId !== entityId) return false;
  return [...permissions].every(permission => role.permissions.has(permission));
}
