import type { EntityManager } from '@mikro-orm/postgresql';
import { Server, SigningKey, Tenant } from '../../control/fleet-entities.ts';
import { replaceCanaries, storeNextCanary } from '../../control/master-key-canary.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { requireMasterKey } from './require-master-key.ts';

type Keys = Pick<Installation, 'control' | 'secrets'>;

/**
 * Begins a change of the master key: registers the key in `MASTER_KEY_PREVIOUS`, so that processes may start with it as
 * their `MASTER_KEY`, beside the present key. It replaces another registered key, such as a mistyped one.
 * @returns false when the key was registered already
 * @throws {OperatorError} when there is no `MASTER_KEY_PREVIOUS`
 */
export function registerNextKey({ control, secrets }: Keys): Promise<boolean> {
  return changeCanaries({ control, secrets }, async em => {
    if (secrets.previous) return storeNextCanary(em, secrets.previous);
    throw new OperatorError('MASTER_KEY_PREVIOUS is not set: set it to the next master key');
  });
}

/**
 * Ends a change of the master key: seals every secret of the control database again under `MASTER_KEY`, and makes that
 * the only key of the installation, in one transaction. Run it with the former key in `MASTER_KEY_PREVIOUS`. It can be
 * run again: secrets that are sealed under the new key already can be opened, too.
 * @returns the number of secrets
 * @throws {OperatorError} when a secret was sealed under neither key; nothing is changed then
 */
export function resealSecrets({ control, secrets }: Keys): Promise<number> {
  return changeCanaries({ control, secrets }, async em => {
    const reseal = (sealed: Uint8Array, owner: string): Buffer =>
      secrets.seal(openSecret(secrets, sealed, owner), owner);
    const tenants = await em.findAll(Tenant);
    for (const tenant of tenants) tenant.rolePassword = reseal(tenant.rolePassword, owners.rolePassword(tenant.guid));
    const kept = await resealRolePasswords(em, reseal);
    const keys = await em.findAll(SigningKey, { populate: ['tenant'] });
    for (const key of keys) key.secret = reseal(key.secret, owners.signingKey(key.tenant.guid, key.kid));
    const servers = await em.find(Server, { adminUrl: { $ne: null } });
    for (const server of servers)
      if (server.adminUrl) server.adminUrl = reseal(server.adminUrl, owners.serverUrl(server.name));
    await em.flush();
    const backupKeys = await resealBackupKeys(em, reseal);
    await replaceCanaries(em, secrets);
    return kept + keys.length + servers.length + backupKeys;
  });
}

/** Seals the passwords of the login roles of all databases again. @returns their number */
async function resealRolePasswords(
  em: EntityManager,
  reseal: (sealed: Uint8Array, owner: string) => Buffer,
): Promise<number> {
  const databases = await em.execute<{ id: string; sealed: Buffer; guid: string }[]>(
    `select d.id, d.role_password as sealed, guid from tenant_databases d join tenants t on t.id = tenant_id
      where d.role_password is not null`,
  );
  for (const { id, sealed, guid } of databases)
    await em.execute('update tenant_databases set role_password = ? where id = ?', [
      reseal(sealed, owners.rolePassword(guid)),
      id,
    ]);
  return databases.length;
}

/** Seals the data keys of backups again. @returns their number */
async function resealBackupKeys(
  em: EntityManager,
  reseal: (sealed: Uint8Array, owner: string) => Buffer,
): Promise<number> {
  const keys = await em.execute<{ id: string; sealed: Buffer; fingerprint: string; guid: string | null }[]>(
    `select k.id, k.sealed, k.fingerprint, t.guid from backup_keys k left join tenants t on t.id = k.tenant_id`,
  );
  for (const { id, sealed, fingerprint, guid } of keys) {
    const again = reseal(sealed, owners.backupKey(guid, fingerprint));
    await em.execute('update backup_keys set sealed = ? where id = ?', [again, id]);
  }
  return keys.length;
}

/**
 * Runs a step of a change in one transaction. Steps run one after the other, and each checks the key again: another
 * step may have made it wrong since the start of the command.
 */
function changeCanaries<T>({ control, secrets }: Keys, step: (em: EntityManager) => Promise<T>): Promise<T> {
  return control.em.fork().transactional(async em => {
    await em.execute('select from installation for update');
    await requireMasterKey(em, secrets);
    return step(em);
  });
}

/** @throws {OperatorError} when the secret was sealed under another master key */
export function openSecret(secrets: SecretBox, sealed: Uint8Array, owner: string): Buffer {
  try {
    return secrets.open(sealed, owner);
  } catch (cause) {
    const message =
      `Nothing was changed: the secret ${owner} was sealed under neither MASTER_KEY nor MASTER_KEY_PREVIOUS. ` +
      'Run the command with the master key that the service runs with';
    throw new OperatorError(message, { cause });
  }
}
