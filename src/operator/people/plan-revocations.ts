import type { Installation } from '../../installation.ts';
import { listKeys } from '../tenants/read-tenants.ts';
import { listClients } from '../tenants/read-users.ts';
import { noSuchClient } from './clients.ts';
import { noSuchKey } from './keys.ts';
import { listSessions, noSuchSession, type OpenSession } from './user-sessions.ts';

/** Which sessions are revoked: one, or all of a user. */
export type RevokedSessions = { id: string } | { email: string };

/**
 * Returns the open sessions that a revocation would end, and changes nothing.
 * @throws {OperatorError} when the tenant has no such session or user
 */
export async function planSessionRevocation(
  installation: Installation,
  slug: string,
  which: RevokedSessions,
): Promise<OpenSession[]> {
  if ('email' in which) return listSessions(installation, slug, which.email);
  const found = (await listSessions(installation, slug)).filter(({ id }) => id === which.id.toLowerCase());
  if (found.length === 0) throw noSuchSession(slug, which.id);
  return found;
}

/** What becomes of a signing key. */
interface KeyPlan {
  kid: string;
  status: string;
  /** True if a new key is made that signs from then on. */
  isReplaced: boolean;
}

/**
 * Returns what a rotation, or the disabling of a key, would do, and changes nothing.
 * @param kid of the key to disable; without it, the active key is rotated
 * @throws {OperatorError} when the tenant has no such key
 */
export async function planKeyChange(installation: Installation, slug: string, kid?: string): Promise<KeyPlan> {
  const keys = await listKeys(installation, slug);
  const key = keys.find(each => (kid === undefined ? each.status === 'active' : each.kid === kid));
  if (!key) throw noSuchKey(slug, kid ?? 'that is active');
  return {
    kid: key.kid,
    status: kid === undefined ? 'retiring' : 'disabled',
    isReplaced: key.status === 'active',
  };
}

/**
 * Returns the legacy client that a revocation would end, with its tokens, and changes nothing.
 * @throws {OperatorError} when the tenant has no such client, or it is revoked already
 */
export async function planClientRevocation(installation: Installation, slug: string, id: string) {
  const client = (await listClients(installation, slug)).find(each => each.id === id && each.state === 'active');
  if (!client) throw noSuchClient(slug, id);
  return client;
}
