import type { Directory } from '../../control/directory.ts';
import { findActiveUser } from '../../tenancy/caller.ts';
import { type Reader, visibleChanges } from '../events/change-sources.ts';
import type { StoredEndpoint } from './endpoint-state.ts';

/**
 * Returns the access of a user of a tenant to its changes; undefined when the user is disabled
 * or deleted.
 */
export async function findReader(
  directory: Pick<Directory, 'user' | 'role'>,
  tenantId: number,
  userId: number,
): Promise<Reader | undefined> {
  const found = await findActiveUser(directory, tenantId, userId);
  if (!found) return undefined;
  const { scope, entityId, entitySince } = found.user;

  return { scope, entityId, entitySince, permissions: found.role.permissions };
}

/** True if a user may read all that an endpoint sends. It sends changes of all entities. */
export function mayRead(
  reader: Reader | undefined,
  { resources }: Pick<StoredEndpoint, 'resources'>,
): reader is Reader {
  if (reader?.scope !== 'All') return false;
  const visible = visibleChanges(reader).resources;

  return resources.every(name => visible.includes(name));
}
