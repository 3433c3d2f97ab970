import type { Statements } from '../postgres/statements.ts';
import { type MasterKey, owners, type Sealer, type SecretBox } from './secret-box.ts';

/** Secrets that are tried when there is no canary yet: more than one, because a single row may be damaged. */
const maxSamples = 20;

/**
 * - `right`: the master key is one of the installation, and the secrets can be opened.
 * - `lacks_previous`: the master key is the next one, but the previous key is not the one that sealed the secrets.
 * - `wrong`: the master key is none of the installation.
 */
export type MasterKeyState = 'right' | 'lacks_previous' | 'wrong';

/** The id of the installation, sealed under the key of the secrets and under the next key. */
interface Canaries {
  readonly id: string;
  readonly current: Buffer | null;
  readonly next: Buffer | null;
}

/**
 * Checks the keys of a process against the canaries of the control database, which must be at head.
 * The master key alone must open a canary: what it seals and signs, the other processes can read. One of the two keys
 * must open the canary of the secrets: the process can read what the others sealed.
 *
 * The first call of an installation seals the canary, unless the master key opens none of the existing secrets. Of
 * concurrent first calls with different keys, one returns `right`. The first call needs the login of the operator:
 * `control migrate` makes it.
 */
export async function checkMasterKey(database: Statements, secrets: SecretBox): Promise<MasterKeyState> {
  const stored = await readCanaries(database);
  if (stored.current) return stateOf(stored, secrets);
  if (!(await opensAnySecret(database, secrets.current))) return 'wrong';
  await database.execute(
    'update installation set master_key_canary = ?, key_fingerprint = ? where master_key_canary is null',
    [sealCanary(stored, secrets.current), secrets.current.fingerprint],
  );
  return stateOf(await readCanaries(database), secrets);
}

/**
 * Returns the key that sealed the secrets, if it is one of the two of a secret box; otherwise undefined. Before there
 * is a canary, it is the master key.
 */
export async function keyInForce(
  database: Statements,
  { current, previous }: Pick<SecretBox, 'current' | 'previous'>,
): Promise<MasterKey | undefined> {
  const { id, current: canary } = await readCanaries(database);
  if (!canary) return current;
  return [current, previous].find(key => opens(key, canary, owners.canary(id)));
}

function stateOf(canaries: Canaries, { current, previous }: SecretBox): MasterKeyState {
  const { id, current: canary, next } = canaries;
  if (opens(current, canary, owners.canary(id))) return 'right';
  if (!opens(current, next, owners.canary(id))) return 'wrong';
  return opens(previous, canary, owners.canary(id)) ? 'right' : 'lacks_previous';
}

/**
 * Registers the previous key of a secret box, whose state must be `right`, as the next master key. It replaces another
 * next key.
 * @returns false when that key has a canary already
 */
export async function storeNextCanary(database: Statements, previous: Sealer): Promise<boolean> {
  const stored = await readCanaries(database);
  const owner = owners.canary(stored.id);
  if (opens(previous, stored.current, owner) || opens(previous, stored.next, owner)) return false;
  await database.execute('update installation set next_master_key_canary = ?', [sealCanary(stored, previous)]);
  return true;
}

/** Makes the master key the only one of the installation. It must have sealed every secret. */
export async function replaceCanaries(database: Statements, { current }: SecretBox): Promise<void> {
  await database.execute(
    'update installation set master_key_canary = ?, key_fingerprint = ?, next_master_key_canary = null',
    [sealCanary(await readCanaries(database), current), current.fingerprint],
  );
}

function sealCanary({ id }: Canaries, key: Sealer): Buffer {
  return key.seal(id, owners.canary(id));
}

async function readCanaries(database: Statements): Promise<Canaries> {
  const [row] = await database.execute<Canaries[]>(
    'select id, master_key_canary as current, next_master_key_canary as next from installation',
  );
  if (!row) throw new Error('the table installation of the control database has no row');
  return row;
}

/** True also when there is no secret: then any key will do. */
async function opensAnySecret(database: Statements, key: Sealer): Promise<boolean> {
  const passwords = await database.execute<{ guid: string; sealed: Buffer }[]>(
    `select guid, role_password as sealed from tenants order by id limit ${maxSamples}`,
  );
  if (passwords.length > 0) return passwords.some(({ guid, sealed }) => opens(key, sealed, owners.rolePassword(guid)));
  const urls = await database.execute<{ name: string; sealed: Buffer }[]>(
    `select name, admin_url as sealed from servers where admin_url is not null order by id limit ${maxSamples}`,
  );
  return urls.length === 0 || urls.some(({ name, sealed }) => opens(key, sealed, owners.serverUrl(name)));
}

function opens(key: Sealer | undefined, sealed: Uint8Array | null, owner: string): boolean {
  if (!key || !sealed) return false;
  try {
    key.open(sealed, owner);
    return true;
  } catch {
    return false;
  }
}
