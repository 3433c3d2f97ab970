import { withConnection } from '../../../postgres/connection.ts';
import type { SealedKey } from '../../backup/data-keys.ts';

/** Stores the data keys of the tenants that are there, for further backups and for restores. */
export async function storeKeys(controlUrl: string, keys: readonly SealedKey[]): Promise<void> {
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
