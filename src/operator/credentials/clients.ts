import { createHash, randomBytes } from 'node:crypto';
import { ApiClient } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { type ClientSummary, listClients } from './read-users.ts';
import { requireName } from './required-values.ts';
import { findUser } from './users.ts';

/**
 * Adds an API client: a program that acts for a user with legacy tokens.
 * @param isDryRun true to add nothing
 * @returns the client with its id, and its secret, of which only a hash is stored
 * @throws {OperatorError} when the tenant has no such user, or the name is not acceptable
 */
export async function addClient(
  installation: Installation,
  slug: string,
  address: string,
  text: string,
  isDryRun = false,
): Promise<{ name: string; email: string; id: string; secret: string }> {
  const name = requireName('name of the program', text);
  const { email, id: user, tenant } = await findUser(installation, slug, address);
  const id = `client-${randomBytes(8).toString('hex')}`;
  const secret = randomBytes(32).toString('base64url');
  const secretHash = createHash('sha256').update(secret).digest();
  const { em } = await installation.control();
  if (!isDryRun) {
    await em.fork().insert(ApiClient, { id, tenant: tenant.id, user, name, secretHash });
  }
  return { name, email, id, secret };
}

/**
 * Revokes an API client: from then on it and every token that was issued to it are refused.
 * @param isDryRun true to return the client, and to change nothing
 * @returns the client as it was before
 * @throws {OperatorError} when the tenant has no such client, or it is revoked already
 */
export async function revokeClient(
  installation: Installation,
  slug: string,
  id: string,
  isDryRun = false,
): Promise<ClientSummary> {
  const client = (await listClients(installation, slug)).find(
    each => each.id === id && each.state === 'active',
  );
  if (!client) {
    throw new OperatorError(
      `${slug} has no active client ${id}. List its clients: bin/backoffice client list ${slug}`,
    );
  }

  const { em } = await installation.control();
  if (!isDryRun) {
    await em.fork().nativeUpdate(ApiClient, { id, revokedAt: null }, { revokedAt: new Date() });
  }

  return client;
}
