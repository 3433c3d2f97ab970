import { createHash, randomBytes } from 'node:crypto';
import { ApiClient } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { listClients } from '../tenants/read-users.ts';
import { findTenant } from '../tenants/tenants.ts';
import { requireName } from './require-name.ts';
import { findUser } from './users.ts';

/**
 * Returns the user and the name of an API client, and adds nothing.
 * @throws {OperatorError} when the tenant has no such user, or the name is not acceptable
 */
export async function planClient(installation: Installation, slug: string, email: string, name: string) {
  return { name: requireName('name of the program', name), user: await findUser(installation, slug, email) };
}

/**
 * Adds an API client: a program that acts for a user with legacy tokens.
 * @returns its id, and its secret, of which only a hash is stored
 */
export async function addClient(
  installation: Installation,
  slug: string,
  email: string,
  name: string,
): Promise<{ id: string; secret: string }> {
  const { user, name: acceptedName } = await planClient(installation, slug, email, name);
  const id = `client-${randomBytes(8).toString('hex')}`;
  const secret = randomBytes(32).toString('base64url');
  const secretHash = createHash('sha256').update(secret).digest();
  await installation.control.em
    .fork()
    .insert(ApiClient, { id, tenant: user.tenant.id, user: user.id, name: acceptedName, secretHash });
  return { id, secret };
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

/**
 * Revokes an API client: from then on it and every token that was issued to it are refused.
 * @throws {OperatorError} when the tenant has no such client, or it is revoked already
 */
export async function revokeClient(installation: Installation, slug: string, id: string): Promise<void> {
  const tenant = await findTenant(installation, slug);
  const revoked = await installation.control.em
    .fork()
    .nativeUpdate(ApiClient, { id, tenant: tenant.id, revokedAt: null }, { revokedAt: new Date() });
  if (revoked === 0) throw noSuchClient(slug, id);
}

function noSuchClient(slug: string, id: string): OperatorError {
  return new OperatorError(`${slug} has no active client ${id}. List its clients: npx backoffice client list ${slug}`);
}
