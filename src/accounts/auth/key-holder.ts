import type {
  ProgramKeyRecord,
  RoleRecord,
  TenantRecord,
  UserRecord,
} from '../../control/records.ts';
import type { UnauthorizedReason } from '../../lib/problems.ts';
import { findActiveUser } from '../../tenancy/caller.ts';
import { isAdmitted, parseNetworks } from '../../tenancy/program-networks.ts';
import type { AuthServices } from './auth-services.ts';

/** The program that a key stands for, with its tenant, and the rights that it has now. */
export interface KeyHolder {
  readonly tenant: TenantRecord;
  readonly key: ProgramKeyRecord;
  readonly user: UserRecord;
  readonly role: RoleRecord;
}

/**
 * Returns the program of a key that requests from an address may use now, as bearer token or to
 * get an access token. The networks are compared before the end of the key and the state of the
 * tenant: somebody who has found a key and is elsewhere does not learn how it is doing.
 * @param tenant of the key
 * @param address of the client, as `RequestState.ipAddress` has it
 * @returns the reason when the key is refused: `tenant` when its tenant is isolated or not
 *   active
 */
export async function findKeyHolder(
  key: ProgramKeyRecord,
  tenant: TenantRecord,
  address: string,
  { directory, tokens }: Pick<AuthServices, 'directory' | 'tokens'>,
): Promise<KeyHolder | UnauthorizedReason> {
  if (key.revoked || key.tenantId !== tenant.id) return 'program_key';

  const found = await findActiveUser(directory, tenant.id, key.userId);
  if (!found?.user.isProgram) return 'user';
  if (!isAdmitted(parseNetworks(found.user.networks), address)) return 'network';
  if (key.expiresAt <= tokens.now() * 1_000) return 'expired';
  if (tenant.status !== 'active' || tenant.isIsolated) return 'tenant';

  return { tenant, key, ...found };
}
