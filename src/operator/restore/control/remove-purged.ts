import type pg from 'pg';
import { databaseUrl } from '../../../control/server-urls.ts';
import type { Installation } from '../../../installation.ts';
import { withConnection } from '../../../postgres/connection.ts';
import type { SealedKey } from '../../backup/data-keys.ts';
import type { LaterChanges } from './later-changes.ts';

/** The tenants that were purged after the restored state. */
export interface PurgedTenants {
  /** Slugs of the tenants whose rows were removed again. */
  readonly removed: string[];
  /** Slugs of the tenants that are deleted and not purged, because their server has their database, or is down. */
  readonly withheld: string[];
}

interface Suspect {
  id: string;
  slug: string;
  database: string;
  server: string;
  adminUrl: Buffer | null;
}

/**
 * Removes the tenants again that were purged after the restored state. The proof of a purge: the tenant has an archive,
 * so it had a data key, and the keyring of the backup target has none; or a later control database names it as purged.
 * A purge drops the database before it destroys the key. A tenant whose database exists in spite of the proof only
 * becomes `deleted`, because nothing must be lost if the keyring is an old copy.
 * @param client on the restored control database, which nobody uses yet
 * @param keys of the keyring
 */
export async function removePurged(
  client: pg.Client,
  { controlUrl, servers }: Pick<Installation, 'controlUrl' | 'servers'>,
  keys: readonly SealedKey[],
  later: LaterChanges | undefined,
): Promise<PurgedTenants> {
  const { rows: suspects } = await client.query<Suspect>(
    `select t.id, slug, database_name as database, s.name as server, admin_url as "adminUrl"
       from tenants t join servers s on s.id = server_id
      where guid = any ($2::uuid[])
         or guid <> all ($1::uuid[]) and exists (select from archives where tenant_guid = guid and state = 'complete')`,
    [keys.flatMap(({ tenant }) => tenant ?? []), later?.purgedTenants ?? []],
  );
  const purged: PurgedTenants = { removed: [], withheld: [] };
  for (const { id, slug, database, server, adminUrl } of suspects) {
    const url = adminUrl ? servers.adminUrl({ name: server, adminUrl }) : controlUrl;
    if (await isGone(url, database)) {
      await client.query(
        `with record as (
           insert into purged_tenants (id, guid, slug, name, database_name, created_at)
           select id, guid, slug, name, database_name, created_at from tenants where id = $1 on conflict do nothing)
         delete from tenants where id = $1`,
        [id],
      );
      purged.removed.push(slug);
    } else {
      await client.query(`update tenants set status = 'deleted', updated_at = now() where id = $1`, [id]);
      purged.withheld.push(slug);
    }
  }
  return purged;
}

/** False also when the server cannot be reached. */
async function isGone(serverUrl: string, database: string): Promise<boolean> {
  const find = (server: pg.Client) => server.query('select from pg_database where datname = $1', [database]);
  return withConnection(databaseUrl(serverUrl, 'postgres'), find).then(
    ({ rowCount }) => rowCount === 0,
    () => false,
  );
}
