import type { SecretBox } from '../../control/secret-box.ts';
import { withConnection } from '../../postgres/connection.ts';
import { opensKey, type SealedKey } from './data-keys.ts';

/**
 * Stores the data keys of the tenants that are there, for further backups and for restores. A key that the
 * master key does not open is left out: a new one seals the next archive of its tenant.
 */
export async function storeKeys(controlUrl: string, found: readonly SealedKey[], secrets: SecretBox): Promise<void> {
  const opened = found.filter(key => opensKey(secrets, key));
  const keys = [...new Map(opened.map(key => [key.fingerprint, key])).values()];
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
