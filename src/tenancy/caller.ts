import type { Directory } from '../control/directory.ts';
import { isSignInAllowed } from '../control/password-logins.ts';
import type { RoleRecord, SessionRecord, TenantRecord, UserRecord } from '../control/records.ts';
import type { Scope } from '../control/scopes.ts';
import { hasFeature } from '../control/tenant-features.ts';
import type { IpNetwork } from '../lib/config/ip-address.ts';
import { isAdmitted, parseNetworks } from './program-networks.ts';

/** The authenticated caller, as verified by the access token and the control database. */
export interface Caller {
  /** Empty for a legacy token, and for a program. */
  readonly sessionId: string;
  /** True if the password of the login is shorter than new ones have to be; else undefined. */
  readonly passwordIsShort?: true | undefined;
  /** The program that the caller is; undefined for a person. */
  readonly program?: CallingProgram;
  /** The hash of the legacy token, in hexadecimal; undefined for an access token. */
  readonly legacyTokenHash?: string;
  /** The time from which the token is refused, in seconds since 1970. */
  readonly endsAt?: number;
  /** The signing key of the access token; undefined for a legacy token and a key of a program. */
  readonly keyId?: string;
  /** `jti` of the access token; the id of the key of a program. */
  readonly tokenId: string;
  readonly userId: number;
  readonly userGuid: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly role: string;
  readonly entityId: number | null;
  /** The time at which that entity was created, in ISO 8601 with microseconds. */
  readonly entitySince: string | null;
  readonly entityType: 'supplier' | 'customer' | null;
  readonly scope: Scope;
  readonly permissions: ReadonlySet<string>;
}

/** A program that calls the API with one of its keys. */
interface CallingProgram {
  /** The name under which the directory finds the key (`ProgramKeyRecord.name`). */
  readonly keyName: string;
  /** The networks from which its requests are accepted; empty: from everywhere. */
  readonly networks: readonly IpNetwork[];
  /** The address of the client of this request; undefined until the program is admitted. */
  readonly address?: string;
}

/** The look-ups that say whether a caller could make a request now. */
export type CallerLookups = Pick<
  Directory,
  'tenant' | 'session' | 'programKey' | 'legacyToken' | 'user' | 'role'
>;

/**
 * The conditions that a caller can lose while a request runs: an active tenant, a valid login,
 * the rights.
 */
export type CallerLoss = 'tenant' | 'login' | 'rights';

/**
 * Returns the first condition that a caller has lost; undefined: none.
 * @param permissions that the caller must still have
 */
export async function findCallerLoss(
  caller: Caller,
  permissions: Iterable<string>,
  tenantGuid: string,
  directory: CallerLookups,
): Promise<CallerLoss | undefined> {
  const { userId } = caller;
  const tenant = await directory.tenant(tenantGuid);
  if (tenant?.status !== 'active') return 'tenant';

  const found = await findActiveUser(directory, tenant.id, userId);
  if (!found || (await isLoginEnded(caller, tenant, directory))) return 'login';

  const { user, role } = found;
  const { program, sessionId } = caller;
  const session = sessionId ? await directory.session(sessionId) : undefined;
  if (session && lacksSecondFactor(session, role)) return 'login';
  if (session && !isSignInAllowed(tenant, session)) return 'login';
  if (program && !isAdmitted(parseNetworks(user.networks), program.address)) return 'login';
  if (!isSameScope(user, caller)) return 'rights';
  return [...permissions].every(permission => role.permissions.has(permission))
    ? undefined
    : 'rights';
}

type Scoped = Pick<Caller, 'scope' | 'entityId' | 'entitySince'>;

function isSameScope(one: Scoped, other: Scoped): boolean {
  return (
    one.scope === other.scope &&
    one.entityId === other.entityId &&
    one.entitySince === other.entitySince
  );
}

/**
 * False once the tenant is not active, the login has ended, or the user has fewer rights than
 * at the beginning.
 */
export async function isCallerCurrent(
  caller: Caller,
  tenantGuid: string,
  directory: CallerLookups,
): Promise<boolean> {
  return (await findCallerLoss(caller, caller.permissions, tenantGuid, directory)) === undefined;
}

/**
 * Returns a user with the role; undefined when the user is disabled, deleted or of another
 * tenant.
 */
export async function findActiveUser(
  directory: Pick<Directory, 'user' | 'role'>,
  tenantId: number,
  userId: number,
): Promise<{ user: UserRecord; role: RoleRecord } | undefined> {
  const user = await directory.user(userId);
  if (!user || user.disabled || user.tenantId !== tenantId) return undefined;
  const role = await directory.role(user.roleId);
  return role && { user, role };
}

/** The methods that count as a second factor, by RFC 8176: a code of an app, a passkey. */
const secondFactors = ['otp', 'pop'];

/** The proofs of a session that decide whether it has a second factor. */
type Proofs = Pick<SessionRecord, 'methods' | 'idpIsFactor'>;

/**
 * True if something was proved beside the password, or the provider has asked for a second
 * factor.
 */
export function hasSecondFactor({ methods, idpIsFactor }: Proofs): boolean {
  return idpIsFactor || methods.some(method => secondFactors.includes(method));
}

/** True if the role requires a second factor, and the session has none. */
export function lacksSecondFactor(
  session: Proofs,
  { requiresSecondFactor }: Pick<RoleRecord, 'requiresSecondFactor'>,
): boolean {
  return requiresSecondFactor && !hasSecondFactor(session);
}

/** The session, token or key that a caller has logged in with. */
type Login = Pick<Caller, 'sessionId' | 'program' | 'legacyTokenHash' | 'keyId'>;

/**
 * True once a request with the same token would be refused, whatever the time: the session, the
 * key of the program or the legacy token is revoked or deleted, the signing key is disabled, or
 * the tenant permits no programs or legacy tokens.
 */
async function isLoginEnded(
  { sessionId, program, legacyTokenHash, keyId }: Login,
  tenant: TenantRecord,
  directory: Pick<Directory, 'session' | 'programKey' | 'legacyToken'>,
): Promise<boolean> {
  if (legacyTokenHash) {
    return (
      !permitsLegacyTokens(tenant) ||
      (await directory.legacyToken(legacyTokenHash))?.revoked !== false
    );
  }

  if (keyId !== undefined && !tenant.keys.has(keyId)) return true;
  if (program) {
    return tenant.isIsolated || (await directory.programKey(program.keyName))?.revoked !== false;
  }
  return sessionId ? (await directory.session(sessionId))?.revoked !== false : false;
}

/** True if a tenant has the feature `legacyTokens`, and is not isolated. */
export function permitsLegacyTokens(
  tenant: Pick<TenantRecord, 'features' | 'isIsolated'>,
): boolean {
  return !tenant.isIsolated && hasFeature(tenant, 'legacyTokens');
}
