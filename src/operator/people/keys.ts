import { randomBytes, randomUUID } from 'node:crypto';
import { type EntityManager, raw } from '@mikro-orm/postgresql';
import { SigningKey, type Tenant } from '../../control/control-entities.ts';
import { owners, type SecretBox, signingKeyBytes } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { lockSpaces, withLock } from '../../postgres/advisory-locks.ts';
import { listKeys } from '../tenants/read-tenants.ts';
import { findTenant } from '../tenants/tenants.ts';
import { openSecret } from './master-key-change.ts';

/** Creates an active key for a tenant, which must not have one. The caller flushes the entity manager. */
export function addSigningKey(em: EntityManager, tenant: Pick<Tenant, 'id' | 'guid'>, secrets: SecretBox): SigningKey {
  const kid = randomUUID();
  const secret = secrets.seal(randomBytes(signingKeyBytes), owners.signingKey(tenant.guid, kid));
  return em.create(SigningKey, { kid, tenant: tenant.id, secret });
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
    if (!key) throw noSuchKey(slug, kid);
    await em.nativeUpdate(SigningKey, { kid }, { status: 'disabled', retiredAt: raw('coalesce(retired_at, now())') });
    if (key.status === 'active') addSigningKey(em, tenant, installation.secrets);
  });
}

function noSuchKey(slug: string, kid: string): OperatorError {
  return new OperatorError(`${slug} has no key ${kid}. List its keys: npx backoffice key list ${slug}`);
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
  return withLock(controlUrl, lockSpaces.tenant, tenant.id, () =>
    control.em.fork().transactional(async em => {
      const result = await change(em);
      await em.flush();
      return result;
    }),
  );
}
