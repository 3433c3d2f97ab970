import type { SecretBox } from '../../../control/secret-box.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { opensKey, type SealedKey } from '../../backup/data-keys.ts';

/**
 * Stores the data keys of the tenants that are there, for further backups and for restores. Of two seals of one key, the
 * one that the master key opens is stored.
 */
export async function storeKeys(controlUrl: string, found: readonly SealedKey[], secrets: SecretBox): Promise<void> {
  const byFingerprint = new Map(found.map(key => [key.fingerprint, key]));
  for (const key of found) if (opensKey(secrets, key)) byFingerprint.set(key.fingerprint, key);
  const keys = [...byFingerprint.values()];
  await withConnection(controlUrl, client =>
    client.query(
      `insert into backup_keys (tenant_id, sealed, fingerprint, created_at)
       select t.id, k.sealed, k.fingerprint, k.created_at
         from unnest($1::uuid[], $2::bytea[], $3::text[], $4::timestamptz[]) as k (guid, sealed, fingerprint, created_at)
         left join tenants t on t.guid = k.guid where k.guid is null or t.id is not null
           on conflict do nothing`,
      [
        keys.map(({ tenant }) => tenant),
        keys.map(({ sealed }) => sealed),
        keys.map(({ fingerprint }) => fingerprint),
        keys.map(({ createdAt }) => createdAt),
      ],
    ),
  );
}
