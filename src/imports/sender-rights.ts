import type { Directory } from '../control/directory.ts';
import type { TenantRecord } from '../control/records.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { findActiveUser, isLoginEnded } from '../tenancy/caller.ts';
import type { StoredImport } from './import-table.ts';

/** The sender of the file may no longer make the changes of an import. The message is for the client. */
export class NotPermittedError extends Error {
  override name = 'NotPermittedError';
}

/** An import cannot go on in this process now. It runs again later. */
export class InterruptedError extends Error {
  override name = 'InterruptedError';
}

type Lookups = Pick<Directory, 'tenant' | 'session' | 'legacyToken' | 'user' | 'role'>;

/**
 * Checks that the sender of a file may still change all records of the resource.
 * @throws {InterruptedError} when the tenant is not active
 * @throws {NotPermittedError} when the session or the legacy token has ended, or the user is disabled or has fewer
 * rights
 */
export async function requireSenderRights(
  directory: Lookups,
  { id, guid }: TenantRecord,
  { actor, ...login }: Pick<StoredImport, 'actor' | 'sessionId' | 'legacyTokenHash'>,
  { access }: ResourceDefinition,
): Promise<void> {
  const { userId } = JSON.parse(actor) as { userId: number };
  const tenant = await directory.tenant(guid);
  if (tenant?.status !== 'active') throw new InterruptedError('the tenant is not active');
  if (await isLoginEnded(login, tenant, directory))
    throw new NotPermittedError(
      login.legacyTokenHash === null
        ? 'the session in which the file was sent has ended'
        : 'the legacy token with which the file was sent has ended',
    );
  const found = await findActiveUser(directory, id, userId);
  if (found?.user.scope !== 'All' || !found.role.permissions.has(access.write))
    throw new NotPermittedError('the user who sent the file may not make these changes any more');
}
