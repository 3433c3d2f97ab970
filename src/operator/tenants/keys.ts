import { randomBytes, randomUUID } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { Server, SigningKey, Tenant } from '../../control/fleet-entities.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findTenant } from './tenants.ts';

const keyBytes = 64; // the size of the hash: RFC 7518 §3.2

/** A new active key for a tenant; one that is active already must have been retired before. */
export function addSigningKey(em: EntityManager, tenant: Pick<Tenant, 'id' | 'guid'>, secrets: SecretBox): SigningKey {
  const kid = randomUUID();
  const secret = secrets.seal(randomBytes(keyBytes), owners.signingKey(tenant.guid, kid));
  return em.create(SigningKey, { kid, tenant: tenant.id, secret });
}

/** A tenant's keys without their secrets, the oldest first. */
export async function listKeys(installation: Installation, slug: string) {
  const tenant = await findTenant(installation, slug);
  const keys = await installation.control.em
    .fork()
    .find(SigningKey, { tenant: tenant.id }, { orderBy: { createdAt: 'asc' } });
  return keys.map(({ kid, status, createdAt, retiredAt }) => ({
    kid,
    status,
    createdAt: createdAt.toISOString(),
    retiredAt: retiredAt?.toISOString() ?? null,
  }));
}

/**
 * Signs with a new key from now on. The one before goes on verifying until every token it signed has expired, so nobody
 * is refused. @returns the new key's id
 */
export async function rotateKey(installation: Installation, slug: string): Promise<string> {
  const tenant = await findTenant(installation, slug);
  return changeKeys(installation, tenant, async em => {
    await em.nativeUpdate(
      SigningKey,
      { tenant: tenant.id, status: 'active' },
      { status: 'retiring', retiredAt: new Date() },
    );
    return addSigningKey(em, tenant, installation.secrets).kid;
  });
}

/** Refuses every token of a key at once. When it is the active one, a new one takes its place. */
export async function disableKey(installation: Installation, slug: string, kid: string): Promise<void> {
  const tenant = await findTenant(installation, slug);
  await changeKeys(installation, tenant, async em => {
    const key = await em.findOne(SigningKey, { tenant: tenant.id, kid });
    if (!key) throw new OperatorError(`${slug} has no key ${kid}`);
    const wasActive = key.status === 'active';
    key.status = 'disabled';
    key.retiredAt ??= new Date();
    await em.flush();
    if (wasActive) addSigningKey(em, tenant, installation.secrets);
  });
}

/** One change of a tenant's keys at a time, in one transaction: there is always exactly one active key. */
async function changeKeys<T>(
  { control, controlUrl, secrets }: Installation,
  tenant: Tenant,
  change: (em: EntityManager) => Promise<T>,
): Promise<T> {
  // Under a master key that the service does not have, a new key would take the tenant out of service.
  openSecret(secrets, tenant.rolePassword, owners.rolePassword(tenant.guid));
  return withConnection(controlUrl, async client => {
    await acquireLock(client, lockSpaces.tenant, tenant.id);
    return control.em.fork().transactional(async em => {
      const result = await change(em);
      await em.flush();
      return result;
    });
  });
}

/**
 * Seals every secret of the control database again, under the present master key. Run it with `MASTER_KEY` new and
 * `MASTER_KEY_PREVIOUS` old; what is sealed under the new one already stays readable, so it can be run again.
 * @returns how many secrets there were
 */
export async function resealSecrets({ control, secrets }: Installation): Promise<number> {
  return control.em.fork().transactional(async em => {
    const again = (sealed: Uint8Array, owner: string): Buffer =>
      secrets.seal(openSecret(secrets, sealed, owner), owner);
    const tenants = await em.findAll(Tenant);
    for (const tenant of tenants) tenant.rolePassword = again(tenant.rolePassword, owners.rolePassword(tenant.guid));
    const keys = await em.findAll(SigningKey, { populate: ['tenant'] });
    for (const key of keys) key.secret = again(key.secret, owners.signingKey(key.tenant.guid, key.kid));
    const servers = await em.find(Server, { adminUrl: { $ne: null } });
    for (const server of servers)
      if (server.adminUrl) server.adminUrl = again(server.adminUrl, owners.serverUrl(server.name));
    await em.flush();
    return tenants.length + keys.length + servers.length;
  });
}

/** @throws {OperatorError} when it was sealed under another master key */
function openSecret(secrets: SecretBox, sealed: Uint8Array, owner: string): Buffer {
  try {
    return secrets.open(sealed, owner);
  } catch (cause) {
    const message = `nothing was changed: ${owner} was sealed under neither MASTER_KEY nor MASTER_KEY_PREVIOUS`;
    throw new OperatorError(message, { cause });
  }
}
