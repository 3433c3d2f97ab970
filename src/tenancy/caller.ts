import type { Directory } from '../control/directory.ts';
import type { TenantRecord } from '../control/records.ts';
import type { Scope } from '../control/scopes.ts';

/** The authenticated caller, as verified by the access token and the control database. */
export interface Caller {
  /** Empty for a legacy token. */
  readonly sessionId: string;
  /** The hash of the legacy token, in hexadecimal; undefined for an access token. */
  readonly legacyTokenHash?: string;
  /** When the access token expires, in seconds since 1970; undefined for a legacy token. */
  readonly expiresAt?: number;
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

/** False once the tenant is not active, the login has ended, or the user has fewer rights than at the beginning. */
export async function isCallerCurrent(
  { sessionId, legacyTokenHash, userId, entityId, scope, permissions }: Caller,
  tenantGuid: string,
  directory: Pick<Directory, 'tenant' | 'session' | 'legacyToken' | 'user' | 'role'>,
): Promise<boolean> {
  const tenant = await directory.tenant(tenantGuid);
  const user = await directory.user(userId);
  const role = user && (await directory.role(user.roleId));
  if (tenant?.status !== 'active' || !user || user.disabled || !role) return false;
  if (await isLoginEnded({ sessionId, legacyTokenHash }, tenant, directory)) return false;
  if (user.scope !== scope || user.entityId !== entityId) return false;
  return [...permissions].every(permission => role.permissions.has(permission));
}

/** What a caller has logged in with. */
interface Login {
  /** Empty for a legacy token; null when it is not known. */
  readonly sessionId: string | null;
  readonly legacyTokenHash?: string | null | undefined;
}

/** True once the session or the legacy token is revoked or deleted, or the tenant permits no legacy tokens. */
export async function isLoginEnded(
  { sessionId, legacyTokenHash }: Login,
  { features }: Pick<TenantRecord, 'features'>,
  directory: Pick<Directory, 'session' | 'legacyToken'>,
): Promise<boolean> {
  if (legacyTokenHash && !features.includes('legacyTokens')) return true;
  if (legacyTokenHash) return (await directory.legacyToken(legacyTokenHash))?.revoked !== false;
  return sessionId ? (await directory.session(sessionId))?.revoked !== false : false;
}
