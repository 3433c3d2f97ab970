import { createHash, randomBytes } from 'node:crypto';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { ArchiveFault } from './format/archive-fault.ts';

/** A key that seals the archives of one tenant, or of the control database. */
export interface DataKey {
  readonly key: Buffer;
  readonly fingerprint: string;
}

/** A data key as the control database and the target have it: sealed by the master key. */
export interface SealedKey {
  /** The guid of the tenant; null: a key of archives of the control database. */
  readonly tenant: string | null;
  readonly fingerprint: string;
  readonly sealed: Buffer;
  readonly createdAt: Date;
}

/** Returns 32 hexadecimal digits that name a data key and tell nothing about it. */
function keyFingerprint(key: Uint8Array): string {
  return createHash('sha256').update('data key of backups').update(key).digest('hex').slice(0, 32);
}

/** Creates the data keys of all provisioned tenants that have none, and the first one of the control database. */
export async function createMissingKeys(control: Queryable, secrets: SecretBox): Promise<void> {
  const { rows } = await control.query<{ id: string | null; guid: string | null }>(
    `select id, guid from tenants t
      where status <> 'provisioning' and not exists (select from backup_keys where tenant_id = t.id)
     union all select null, null where not exists (select from backup_keys where tenant_id is null)`,
  );
  if (rows.length > 0) await insertKeys(control, secrets, rows);
}

/** Creates a key that seals the archives of the control database from now on. */
export function createControlKey(control: Queryable, secrets: SecretBox): Promise<void> {
  return insertKeys(control, secrets, [{ id: null, guid: null }]);
}

/** Waits until no purge is about to be committed (`isKeyOutdated`). */
async function insertKeys(
  control: Queryable,
  secrets: SecretBox,
  tenants: readonly { id: string | null; guid: string | null }[],
): Promise<void> {
  const keys = tenants.map(({ id, guid }) => {
    const key = randomBytes(32);
    const fingerprint = keyFingerprint(key);
    return { id, fingerprint, sealed: secrets.seal(key, owners.backupKey(guid, fingerprint)) };
  });
  await control.query(
    `with no_purge as materialized (select from installation for share)
     insert into backup_keys (tenant_id, sealed, fingerprint)
     select k.* from no_purge, unnest($1::bigint[], $2::bytea[], $3::text[]) as k on conflict (tenant_id) do nothing`,
    [keys.map(({ id }) => id), keys.map(({ sealed }) => sealed), keys.map(({ fingerprint }) => fingerprint)],
  );
}

/**
 * Stores the data keys of a target that belong to tenants that are there, for further backups and for restores. A key
 * that the master key does not open is left out: a new one seals the next archive of its tenant.
 */
export async function adoptKeys(control: Queryable, found: readonly SealedKey[], secrets: SecretBox): Promise<void> {
  const opened = found.filter(key => opensKey(secrets, key));
  const keys = [...new Map(opened.map(key => [key.fingerprint, key])).values()];
  const resealed = keys.map(({ tenant, fingerprint, sealed }) => {
    const owner = owners.backupKey(tenant, fingerprint);
    return secrets.seal(secrets.open(sealed, owner), owner);
  });
  await control.query(
    `insert into backup_keys (tenant_id, sealed, fingerprint, created_at)
     select t.id, k.sealed, k.fingerprint, k.created_at
       from unnest($1::uuid[], $2::bytea[], $3::text[], $4::timestamptz[]) as k (guid, sealed, fingerprint, created_at)
       left join tenants t on t.guid = k.guid where k.guid is null or t.id is not null
         on conflict do nothing`,
    [
      keys.map(({ tenant }) => tenant),
      resealed,
      keys.map(({ fingerprint }) => fingerprint),
      keys.map(({ createdAt }) => createdAt),
    ],
  );
}

/** Returns all data keys, the newest one of the control database before older ones. */
export async function readKeys(control: Queryable): Promise<SealedKey[]> {
  const { rows } = await control.query<{ [Field in keyof SealedKey]: SealedKey[Field] }>(
    `select t.guid as tenant, fingerprint, sealed, k.created_at as "createdAt"
       from backup_keys k left join tenants t on t.id = k.tenant_id order by k.created_at desc, k.id`,
  );
  return rows;
}

/** Opens data keys. */
export interface Keyring {
  /** Returns the key that seals new archives. @throws when there is none */
  current(tenant: string | null): DataKey;
  /**
   * Returns the key with a fingerprint.
   * @throws {ArchiveFault} `wrong_key` when it was destroyed, or was sealed under another master key
   */
  find(tenant: string | null, fingerprint: string): Buffer;
}

export function createKeyring(keys: readonly SealedKey[], secrets: SecretBox): Keyring {
  const open = (key: SealedKey): Buffer => {
    if (opensKey(secrets, key)) return secrets.open(key.sealed, owners.backupKey(key.tenant, key.fingerprint));
    throw new ArchiveFault(
      'wrong_key',
      `its key ${key.fingerprint} was sealed under another MASTER_KEY, or was changed`,
    );
  };
  return {
    current: tenant => {
      const key = keys.find(each => each.tenant === tenant);
      if (!key) throw new Error('there is no key for the archive');
      return { key: open(key), fingerprint: key.fingerprint };
    },
    find: (tenant, fingerprint) => {
      const found = keys.filter(each => each.tenant === tenant && each.fingerprint === fingerprint);
      const key = found.find(each => opensKey(secrets, each)) ?? found[0];
      if (!key) throw new ArchiveFault('wrong_key', `its key ${fingerprint} was destroyed, or is not in the target`);
      return open(key);
    },
  };
}

/** Returns whether the master key, or the previous one, opens a data key. */
export function opensKey(secrets: SecretBox, { tenant, fingerprint, sealed }: SealedKey): boolean {
  try {
    return keyFingerprint(secrets.open(sealed, owners.backupKey(tenant, fingerprint))) === fingerprint;
  } catch {
    return false;
  }
}
