import type { Logger } from 'pino';
import { OperatorError } from '../lib/log/operator-error.ts';
import { otherKeyDetail } from '../lib/postgres/database-error.ts';
import type { Queryable } from '../lib/postgres/shared-connection.ts';
import { MasterKeyError, owners, type SealingKey, type SecretBox } from './secret-box.ts';

/** The facts about its master key that the control database has. */
interface StoredKey {
  /** The id of the installation. */
  readonly id: string;
  /** Null before the first use of a key; so is the canary. */
  readonly fingerprint: string | null;
  /** The id, sealed. */
  readonly canary: Buffer | null;
}

/**
 * Checks that one of the two keys of a secret box is the master key of the control database,
 * which must be at head, and makes it the present one. The canary must open under it: a
 * fingerprint alone proves no key.
 *
 * The first call of an installation makes `MASTER_KEY` its master key; of concurrent first
 * calls with different keys, one does. It needs the login of the operator: `control migrate`
 * makes it.
 * @throws {MasterKeyError} when neither key is the master key
 * @throws {OperatorError} when the canary does not open under the key with the fingerprint
 */
export async function requireMasterKey(control: Queryable, secrets: SecretBox): Promise<void> {
  let stored = await readKey(control);

  if (stored.fingerprint === null) {
    await storeMasterKey(control, secrets.masterKey, 'where key_fingerprint is null');
    stored = await readKey(control);
  }

  secrets.setPresent(stored.fingerprint);
  if (!secrets.isReady) throw new MasterKeyError(secrets.lack);
  requireCanary(stored, secrets.present);
}

/**
 * Makes a key the master key of the control database.
 * @param where SQL condition of the row
 */
export async function storeMasterKey(
  control: Queryable,
  key: SealingKey,
  where = '',
): Promise<void> {
  const { id } = await readKey(control);
  await control.query(
    `update installation set key_fingerprint = $1, master_key_canary = $2 ${where}`,
    [key.fingerprint, key.seal(id, owners.canary(id))],
  );
}

/**
 * Runs `store`, which seals a secret and stores it. Runs it once more if the control database
 * has another master key than this process knew of: the database refuses what another key has
 * sealed (`require_present_key`).
 * @throws {MasterKeyError} when neither key of this process is the master key
 */
export async function storeSealed<T>(secrets: SecretBox, store: () => Promise<T>): Promise<T> {
  try {
    return await store();
  } catch (error) {
    const fingerprint = otherKeyDetail(error);
    if (fingerprint === undefined) throw error;

    secrets.setPresent(fingerprint);
    return store();
  }
}

/**
 * Returns a function that logs that neither key of a process is the present one any more, and
 * that one is again.
 */
export function reportMasterKey(
  secrets: SecretBox,
  log: Pick<Logger, 'error' | 'info'>,
): () => void {
  let wasReady = true;

  return () => {
    const { isReady } = secrets;
    if (isReady === wasReady) return;

    wasReady = isReady;
    if (isReady) {
      log.info({ event: 'master_key_known' }, 'this process has the present master key again');
    } else {
      log.error({ event: 'master_key_unknown' }, secrets.lack);
    }
  };
}

async function readKey(control: Queryable): Promise<StoredKey> {
  const { rows } = await control.query<StoredKey>(
    'select id, key_fingerprint as fingerprint, master_key_canary as canary from installation',
  );
  const [row] = rows;
  if (!row) throw new Error('the table installation of the control database has no row');
  return row;
}

function requireCanary({ id, canary }: StoredKey, key: SealingKey): void {
  try {
    key.open(canary ?? Buffer.alloc(0), owners.canary(id));
  } catch (cause) {
    throw new OperatorError(
      'The canary of the control database does not open under the key that has its fingerprint: the row of the table ' +
        'installation was changed. Restore it from a backup',
      { cause },
    );
  }
}
