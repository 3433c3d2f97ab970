import { randomBytes, randomUUID } from 'node:crypto';
import { type EntityManager, raw } from '@mikro-orm/postgresql';
import { Server, SigningKey, Tenant } from '../../control/fleet-entities.ts';
import { sealCanary } from '../../control/master-key-canary.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { acquireLock, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findTenant } from './tenants.ts';

const keyBytes = 64; // RFC 7518 §3.2: an HS512 key is at least as large as the hash

/** Creates an active key for a tenant, which must not have one. The caller flushes the entity manager. */
export function addSigningKey(em: EntityManager, tenant: Pick<Tenant, 'id' | 'guid'>, secrets: SecretBox): SigningKey {
  const kid = randomUUID();
  const secret = secrets.seal(randomBytes(keyBytes), owners.signingKey(tenant.guid, kid));
  return em.create(SigningKey, { kid, tenant: tenant.id, secret });
}

/** Returns a tenant's keys without their secrets, oldest first. */
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
 * Replaces the active key. The previous key becomes `retiring`: it still verifies tokens until every token that it
 * signed has expired, so no user is logged out.
 * @returns the id of the new key
 */
export async function rotateKey(installation: Installation, slug: string): Promise<string> {
  const tenant = await findTenant(installation, slug);
  return changeKeys(installation, tenant, async em => {
    // By the clock of the database, by which the service counts the retirement; the operator's may differ.
    await em.nativeUpdate(
      SigningKey,
      { tenant: tenant.id, status: 'active' },
      { status: 'retiring', retiredAt: raw('now()') },
    );
    return addSigningKey(em, tenant, installation.secrets).kid;
  });
}

/**
 * Disables a key: every token that it signed is refused at once. A new key replaces the active one.
 * @throws {OperatorError} when the tenant has no such key
 */
export async function disableKey(installation: Installation, slug: string, kid: string): Promise<void> {
  const tenant = await findTenant(installation, slug);
  await changeKeys(installation, tenant, async em => {
    const key = await em.findOne(SigningKey, { tenant: tenant.id, kid });
    if (!key) {
      throw new OperatorError(`${slug} has no key ${kid}. List its keys: npm run -s tenant -- key list ${slug}`);
    }
    await em.nativeUpdate(SigningKey, { kid }, { status: 'disabled', retiredAt: raw('coalesce(retired_at, now())') });
    if (key.status === 'active') addSigningKey(em, tenant, installation.secrets);
  });
}

/**
 * Changes a tenant's keys in one transaction, under the lock of the tenant. So changes of one tenant run one after the
 * other, and there is always exactly one active key.
 * @throws {OperatorError} when the tenant's secrets were sealed under another master key
 */
async function changeKeys<T>(
  { control, controlUrl, secrets }: Installation,
  tenant: Tenant,
  change: (em: EntityManager) => Promise<T>,
): Promise<T> {
  // The service could not open a key that is sealed under another master key: the tenant would be out of service.
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
 * Seals every secret of the control database again under the current master key, in one transaction. Run it with the
 * new key in `MASTER_KEY` and the old one in `MASTER_KEY_PREVIOUS`. It can be run again: secrets that are sealed under
 * the new key already can be opened, too.
 * @returns the number of secrets
 * @throws {OperatorError} when a secret was sealed under neither key; nothing is changed then
 */
export async function resealSecrets({ control, secrets }: Installation): Promise<number> {
  return control.em.fork().transactional(async em => {
    const reseal = (sealed: Uint8Array, owner: string): Buffer =>
      secrets.seal(openSecret(secrets, sealed, owner), owner);
    const tenants = await em.findAll(Tenant);
    for (const tenant of tenants) tenant.rolePassword = reseal(tenant.rolePassword, owners.rolePassword(tenant.guid));
    const keys = await em.findAll(SigningKey, { populate: ['tenant'] });
    for (const key of keys) key.secret = reseal(key.secret, owners.signingKey(key.tenant.guid, key.kid));
    const servers = await em.find(Server, { adminUrl: { $ne: null } });
    for (const server of servers)
      if (server.adminUrl) server.adminUrl = reseal(server.adminUrl, owners.serverUrl(server.name));
    await em.flush();
    await em.execute('update installation set master_key_canary = ?', [await sealCanary(control, secrets)]);
    return tenants.length + keys.length + servers.length;
  });
}

/** @throws {OperatorError} when the secret was sealed under another master key */
function openSecret(secrets: SecretBox, sealed: Uint8Array, owner: string): Buffer {
  try {
    return secrets.open(sealed, owner);
  } catch (cause) {
    const message =
      `Nothing was changed: the secret ${owner} was sealed under neither MASTER_KEY nor MASTER_KEY_PREVIOUS. ` +
      'Run the command with the master key that the service runs with';
    throw new OperatorError(message, { cause });
  }
}
