import { randomBytes } from 'node:crypto';
import { owners, type SecretBox } from '../../../control/secret-box.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';

const archiveKeyBytes = 32;

interface InstallationRow {
  id: string;
  sealed: Buffer | null;
}

/**
 * Returns the key that proves that this installation has written an archive of a tenant, and
 * makes it when there is none. It stays the same when the master key changes, so that older
 * archives stay proved.
 * @throws {OperatorError} when the master key does not open it
 */
export async function requireArchiveKey(control: Queryable, secrets: SecretBox): Promise<Buffer> {
  const present = await readArchiveKey(control, secrets);
  if (present) return present;

  const { id } = await readInstallation(control);
  const sealed = secrets.seal(randomBytes(archiveKeyBytes), owners.archiveKey(id));
  await control.query('update installation set archive_key = $1 where archive_key is null', [
    sealed,
  ]);

  const stored = await readArchiveKey(control, secrets); // another command may have been first
  if (!stored) throw new Error('the key of archives was not stored');
  return stored;
}

/**
 * Returns the key that proves who has written an archive of a tenant; undefined: there is none
 * yet.
 * @throws {OperatorError} when the master key does not open it
 */
export async function readArchiveKey(
  control: Queryable,
  secrets: SecretBox,
): Promise<Buffer | undefined> {
  const { id, sealed } = await readInstallation(control);
  if (sealed === null) return undefined;

  try {
    return secrets.open(sealed, owners.archiveKey(id));
  } catch (cause) {
    throw new OperatorError(
      'MASTER_KEY does not open the key of archives: set the key of this installation',
      {
        cause,
      },
    );
  }
}

async function readInstallation(control: Queryable): Promise<InstallationRow> {
  const { rows } = await control.query<{ id: string; sealed: Buffer | null }>(
    'select id, archive_key as sealed from installation',
  );
  const [row] = rows;
  if (!row) throw new Error('the control database has no installation');
  return row;
}

/** The purpose of the keys that prove who has written an archive of the control database. */
const controlPurpose = 'mac of control archives';

/**
 * Returns the keys that may have made the code of an archive of the control database: that of
 * the master key, and that of the previous one. They need no control database, which may be
 * lost.
 */
export function controlMacKeys({ masterKey, previous }: SecretBox): Buffer[] {
  return [masterKey, previous].flatMap(key => (key ? [key.derive(controlPurpose)] : []));
}

/** Returns the key that makes the code of an archive of the control database. */
export function controlMacKey({ present }: SecretBox): Buffer {
  return present.derive(controlPurpose);
}
