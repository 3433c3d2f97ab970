import type { ControlDatabase } from './database.ts';
import { owners, type SecretBox } from './secret-box.ts';

/** Secrets that are tried when there is no canary yet: more than one, because a single row may be damaged. */
const maxSamples = 20;

/**
 * Checks that the master key, or the previous one, is that of the control database, which must be at head: opens the
 * canary. The first call of an installation seals the canary, unless the key opens none of the existing secrets. Of two
 * concurrent first calls with different keys, one returns false. The first call needs the login of the operator:
 * `control migrate` makes it.
 */
export async function isMasterKeyRight(control: ControlDatabase, secrets: SecretBox): Promise<boolean> {
  const stored = await readCanary(control);
  if (stored.canary) return opens(secrets, stored.canary, owners.canary(stored.id));
  if (!(await opensAnySecret(control, secrets))) return false;
  await control.em.execute('update installation set master_key_canary = ? where master_key_canary is null', [
    secrets.seal(stored.id, owners.canary(stored.id)),
  ]);
  const { canary, id } = await readCanary(control);
  return canary !== null && opens(secrets, canary, owners.canary(id));
}

/** Returns a canary that is sealed under the current master key. */
export async function sealCanary(control: ControlDatabase, secrets: SecretBox): Promise<Buffer> {
  const { id } = await readCanary(control);
  return secrets.seal(id, owners.canary(id));
}

async function readCanary(control: ControlDatabase): Promise<{ id: string; canary: Buffer | null }> {
  const [row] = await control.em.execute<{ id: string; canary: Buffer | null }[]>(
    'select id, master_key_canary as canary from installation',
  );
  if (!row) throw new Error('the table installation of the control database has no row');
  return row;
}

/** True also when there is no secret: then any key will do. */
async function opensAnySecret(control: ControlDatabase, secrets: SecretBox): Promise<boolean> {
  const passwords = await control.em.execute<{ guid: string; sealed: Buffer }[]>(
    `select guid, role_password as sealed from tenants order by id limit ${maxSamples}`,
  );
  if (passwords.length > 0)
    return passwords.some(({ guid, sealed }) => opens(secrets, sealed, owners.rolePassword(guid)));
  const urls = await control.em.execute<{ name: string; sealed: Buffer }[]>(
    `select name, admin_url as sealed from servers where admin_url is not null order by id limit ${maxSamples}`,
  );
  return urls.length === 0 || urls.some(({ name, sealed }) => opens(secrets, sealed, owners.serverUrl(name)));
}

function opens(secrets: SecretBox, sealed: Uint8Array, owner: string): boolean {
  try {
    secrets.open(sealed, owner);
    return true;
  } catch {
    return false;
  }
}
