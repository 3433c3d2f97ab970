import { setTimeout as sleep } from 'node:timers/promises';
import type { Installation, KeyAccess } from '../../control/installation.ts';
import { requireMasterKey, storeMasterKey } from '../../control/present-key.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { changeOrUndo } from '../command/change-or-undo.ts';

type Keys = KeyAccess & Pick<Installation, 'pool'>;

/**
 * A writer of a secret may have locked the row of a tenant before it waits for that of the
 * installation, which `reseal` has. So `reseal` gives way before PostgreSQL sees a deadlock and
 * ends one of the two (`deadlock_timeout`, 1 s by default).
 */
const maxLockWait = '500ms';
const retryMs = 250;
/** The time for which `reseal` tries again while others hold locks. */
const maxTriesMs = 60_000;

/** A secret of the control database, and its owner. */
interface StoredSecret {
  id: string;
  sealed: Buffer;
  /** The guid of the owning tenant, or of the installation; null without one. */
  guid: string | null;
  /** The id of a signing key, or the name of a server. */
  name: string;
}

/**
 * The columns with secrets in the control database, and the owner for whom each of them is
 * sealed.
 */
const secretColumns: {
  table: string;
  column: string;
  select: string;
  owner: (secret: StoredSecret) => string;
}[] = [
  {
    table: 'tenants',
    column: 'role_password',
    select: 'select id, role_password as sealed, guid from tenants',
    owner: ({ guid }) => owners.rolePassword(guid ?? ''),
  },
  {
    table: 'tenant_databases',
    column: 'role_password',
    select: `select d.id, d.role_password as sealed, guid from tenant_databases d join tenants t on t.id = tenant_id
              where d.role_password is not null`,
    owner: ({ guid }) => owners.rolePassword(guid ?? ''),
  },
  {
    table: 'signing_keys',
    column: 'secret',
    select:
      'select kid as id, secret as sealed, guid, kid as name from signing_keys join tenants t on t.id = tenant_id',
    owner: ({ guid, name }) => owners.signingKey(guid ?? '', name),
  },
  {
    table: 'servers',
    column: 'admin_url',
    select: 'select id, admin_url as sealed, name from servers where admin_url is not null',
    owner: ({ name }) => owners.serverUrl(name),
  },
  {
    table: 'webhook_tenants',
    column: 'sealed_key',
    select:
      'select w.id, sealed_key as sealed, guid from webhook_tenants w join tenants t on t.id = tenant_id',
    owner: ({ guid }) => owners.webhookKey(guid ?? ''),
  },
  {
    table: 'factors',
    column: 'secret',
    select: `select f.id, secret as sealed, guid, f.id as name from factors f join tenants t on t.id = tenant_id
              where secret is not null`,
    owner: ({ guid, name }) => owners.factor(guid ?? '', name),
  },
  {
    table: 'installation',
    column: 'archive_key',
    select:
      'select id, archive_key as sealed, id as guid from installation where archive_key is not null',
    owner: ({ guid }) => owners.archiveKey(guid ?? ''),
  },
];

/**
 * Changes the master key: makes `MASTER_KEY` the present one, and seals every secret of the
 * control database again under it, in one transaction. Run it with the former key in
 * `MASTER_KEY_PREVIOUS`. It can be run again.
 *
 * It locks the row of the installation before it reads. Every transaction that stores a secret
 * locks that row, too, and is refused if another key has sealed the secret
 * (`require_present_key`): so no secret is left under the former key.
 * @param isDryRun true to open and seal each secret, and to change nothing
 * @returns the number of secrets
 * @throws {OperatorError} when neither key is the present one, when a secret cannot be opened,
 *   or when others hold locks for a minute; nothing is changed then
 */
export async function resealSecrets({ pool, secrets }: Keys, isDryRun = false): Promise<number> {
  const transact = async (work: (control: Queryable) => Promise<number>): Promise<number> => {
    const client = await pool.connect();
    try {
      return await inTransaction(client, () => work(client));
    } finally {
      client.release();
    }
  };
  const deadline = performance.now() + maxTriesMs;

  for (;;) {
    try {
      return await changeOrUndo(transact, isDryRun, control => resealIn(control, secrets));
    } catch (error) {
      if (sqlState(error) !== '55P03') throw error;
      if (performance.now() > deadline) throw stillLocked(error);
      await sleep(retryMs);
    }
  }
}

async function resealIn(control: Queryable, secrets: SecretBox): Promise<number> {
  await control.query(`set local lock_timeout = '${maxLockWait}'`);
  await control.query('select from installation for update');
  await requireMasterKey(control, secrets);
  await storeMasterKey(control, secrets.masterKey);

  let count = 0;
  for (const { table, column, select, owner } of secretColumns) {
    const { rows: stored } = await control.query<StoredSecret>(select);
    const sealed = stored.map(secret =>
      resealed(secrets, secret.sealed, owner(secret)).toString('hex'),
    );
    const key = table === 'signing_keys' ? 'kid' : 'id';
    await control.query(
      `update ${table} t set ${column} = decode(new.sealed, 'hex')
         from unnest($1::text[], $2::text[]) as new (id, sealed) where t.${key}::text = new.id`,
      [stored.map(({ id }) => id), sealed],
    );
    count += stored.length;
  }
  return count;
}

/** @throws {OperatorError} when the secret cannot be opened */
function resealed(secrets: SecretBox, sealed: Uint8Array, owner: string): Buffer {
  let secret: Buffer;
  try {
    secret = secrets.open(sealed, owner);
  } catch (cause) {
    const message =
      `Nothing was changed: the secret ${owner} opens under neither MASTER_KEY nor MASTER_KEY_PREVIOUS, because its row ` +
      'was changed. Restore the row from a backup, or remove what it belongs to';
    throw new OperatorError(message, { cause });
  }
  return secrets.masterKey.seal(secret, owner);
}

function stillLocked(cause: unknown): OperatorError {
  return new OperatorError(
    'Other sessions have held locks on rows of the control database for a minute: nothing was changed. Find them in ' +
      'pg_stat_activity, and run the command again',
    { cause },
  );
}
