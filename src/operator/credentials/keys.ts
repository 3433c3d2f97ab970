import { randomBytes, randomUUID } from 'node:crypto';
import { type EntityManager, raw } from '@mikro-orm/postgresql';
import { SigningKey, type Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { owners, type SecretBox, signingKeyBytes } from '../../control/secret-box.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { changeOrUndo } from '../command/change-or-undo.ts';
import { findTenant } from '../registry/tenants.ts';

/**
 * Creates an active key for a tenant, which must not have one. The caller flushes the entity
 * manager.
 */
export function addSigningKey(
  em: EntityManager,
  tenant: Pick<Tenant, 'id' | 'guid'>,
  secrets: SecretBox,
): SigningKey {
  const kid = randomUUID();
  const secret = secrets.seal(randomBytes(signingKeyBytes), owners.signingKey(tenant.guid, kid));
  return em.create(SigningKey, { kid, tenant: tenant.id, secret });
}

/**
 * Replaces the active key. The previous key becomes `retiring`: it still verifies tokens until
 * every token that it signed has expired, so no user is logged out.
 * @param isDryRun true to return the result, and to change nothing
 * @returns the ids of the new key and of the one that it replaces; null: the tenant had none
 */
export async function rotateKey(
  installation: Installation,
  slug: string,
  isDryRun = false,
): Promise<{ kid: string; previous: string | null }> {
  return changeKeys(installation, slug, isDryRun, async (em, tenant) => {
    const previous = await em.findOne(SigningKey, { tenant: tenant.id, status: 'active' });
    if (previous) await retire(em, previous, 'retiring');
    return {
      kid: addSigningKey(em, tenant, installation.secrets).kid,
      previous: previous?.kid ?? null,
    };
  });
}

/**
 * Disables a key: every token that it signed is refused at once. A new key replaces the active
 * one.
 * @param isDryRun true to return the result, and to change nothing
 * @returns whether it was the active one
 * @throws {OperatorError} when the tenant has no such key
 */
export async function disableKey(
  installation: Installation,
  slug: string,
  kid: string,
  isDryRun = false,
): Promise<{ isReplaced: boolean }> {
  return changeKeys(installation, slug, isDryRun, async (em, tenant) => {
    const key = await em.findOne(SigningKey, { tenant: tenant.id, kid });
    if (!key) throw noSuchKey(slug, kid);
    const isReplaced = key.status === 'active';
    await retire(em, key, 'disabled');
    if (isReplaced) addSigningKey(em, tenant, installation.secrets);
    return { isReplaced };
  });
}

/**
 * Gives a key another status, at the time of the database's clock, by which the service counts
 * the retirement: the clock of the operator may differ.
 */
async function retire(
  em: EntityManager,
  { kid }: SigningKey,
  status: 'retiring' | 'disabled',
): Promise<void> {
  await em.nativeUpdate(
    SigningKey,
    { kid },
    { status, retiredAt: raw('coalesce(retired_at, now())') },
  );
}

function noSuchKey(slug: string, kid: string): OperatorError {
  return new OperatorError(
    `${slug} has no key ${kid}. List its keys: bin/backoffice key list ${slug}`,
  );
}

/**
 * Changes a tenant's keys in one transaction, which locks its row. So changes of one tenant run
 * one after the other, and there is always exactly one active key.
 * @throws {OperatorError} when the tenant's secrets were sealed under another master key
 */
async function changeKeys<T>(
  installation: Installation,
  slug: string,
  isDryRun: boolean,
  change: (em: EntityManager, tenant: Tenant) => Promise<T>,
): Promise<T> {
  const tenant = await findTenant(installation, slug);
  const { em } = await installation.control();
  const transact = (work: (em: EntityManager) => Promise<T>) => em.fork().transactional(work);

  return changeOrUndo(transact, isDryRun, async em => {
    // It does not take the lock of the tenant, which a move or an archive may have for hours: a
    // stolen key is disabled at once. It uses the connection of the transaction, because the
    // server may have no other one.
    await em.execute('select from tenants where id = ? for no key update', [tenant.id]);
    const result = await change(em, tenant);
    await em.flush();
    return result;
  });
}
