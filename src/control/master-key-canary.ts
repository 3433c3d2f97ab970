import type { ControlDatabase } from './database.ts';
import { owners, type SecretBox } from './secret-box.ts';

/** Secrets that are tried when there is no canary yet: more than one, because a single row may be damaged. */
const maxSamples = 20;

/**
 * Checks that the master key, or the previous one, is that of the control database, which must be at head: opens the
 * canary. The first call of an installation seals the canary, unless the key opens none of the existing secrets. Of two
 * concurrent first calls with different keys, one returns false.
 */
export async function isMasterKeyRight(control: ControlDatabase, secrets: SecretBox): Promise<boolean> {
  const stored = await readCanary(control);
  if (stored.canary) return opens(secrets, stored.canary, stored.id);
  if (!(await opensAnySecret(control, secrets))) return false;
  await control.em.execute('update installation set master_key_canary = ? where master_key_canary is null', [
    secrets.seal(stored.id, owners.canary(stored.id)),
  ]);
  const { canary, id } = await readCanary(control);
  return canary !== null && opens(secrets, canary, id);
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

function opens(secrets: SecretBox, canary: Uint8Array, id: string): boolean {
  try {
    return secrets.open(canary, owners.canary(id)).toString() === id;
  } catch {
    return false;
  }
}

/** True also when there is no secret: then any key will do. */
async function opensAnySecret(control: ControlDatabase, secrets: SecretBox): Promise<boolean> {
  const passwords = await control.em.execute<{ guid: string; sealed: Buffer }[]>(
    `select guid, role_password as sealed from tenants order by id limit ${maxSamples}`,
  );
  const urls = await control.em.execute<{ name: string; sealed: Buffer }[]>(
    `select name, admin_url as sealed from servers where admin_url is not null order by id limit ${maxSamples}`,
  );
  const samples = [
    ...passwords.map(({ guid, sealed }) => ({ sealed, owner: owners.rolePassword(guid) })),
    ...urls.map(({ name, sealed }) => ({ sealed, owner: owners.serverUrl(name) })),
  ];
  const isOpen = ({ sealed, owner }: (typeof samples)[number]): boolean => {
    try {
      return secrets.open(sealed, owner).length > 0;
    } catch {
      return false;
    }
  };
  return samples.length === 0 || samples.some(isOpen);
}
