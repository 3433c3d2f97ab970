import type pg from 'pg';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import type { SealedKey } from '../archives/data-keys.ts';
import type { LaterChanges } from './later-changes.ts';

/** The tenants that were purged after the restored state. */
export interface PurgedTenants {
  /** Slugs of the tenants whose rows were removed again. */
  readonly removed: string[];
  /**
   * Slugs of the tenants that are deleted and not purged: their server has their database, or is down, or this
   * master key has not made the mark of the purge.
   */
  readonly withheld: string[];
}

interface Suspect {
  id: string;
  guid: string;
  slug: string;
}

/** A database that a tenant has or may get. */
interface Recorded {
  database: string;
  server: string;
  adminUrl: Buffer | null;
}

/**
 * Removes the tenants again that were purged after the restored state: the backup target has a mark of it, or a later
 * control database names them. A purge drops all databases first. A tenant of which one exists in spite of that,
 * or whose mark this master key has not made, only becomes `deleted`, because nothing must be lost by a forged mark.
 * @param client on the restored control database, which nobody uses yet
 * @param marks `readPurgeMarks`
 * @param keys of the target: a purge removes that of its tenant
 */
export async function removePurged(
  client: pg.Client,
  installation: Pick<Installation, 'controlUrl' | 'servers'>,
  marks: ReadonlyMap<string, boolean>,
  keys: readonly SealedKey[],
  later: LaterChanges | undefined,
): Promise<PurgedTenants> {
  const purgedLater = later?.purgedTenants ?? [];
  const { rows: suspects } = await client.query<Suspect>(
    'select id, guid, slug from tenants where guid = any ($1::uuid[])',
    [[...marks.keys(), ...purgedLater]],
  );
  const purged: PurgedTenants = { removed: [], withheld: [] };
  for (const { id, guid, slug } of suspects) {
    const isMarked = marks.get(guid) === true || purgedLater.includes(guid);
    const isSure = isMarked && !keys.some(({ tenant }) => tenant === guid);
    if (isSure && (await hasNoDatabase(client, installation, id))) {
      await client.query(
        `with record as (
           insert into purged_tenants (id, guid, slug, name, database_name, created_at)
           select id, guid, slug, name, database_name, created_at from tenants where id = $1 on conflict do nothing),
         databases as (delete from tenant_databases where tenant_id = $1)
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

async function hasNoDatabase(
  client: pg.Client,
  { controlUrl, servers }: Pick<Installation, 'controlUrl' | 'servers'>,
  tenantId: string,
): Promise<boolean> {
  const { rows } = await client.query<Recorded>(
    `select d.database_name as database, s.name as server, admin_url as "adminUrl"
       from tenant_databases d join servers s on s.id = server_id where tenant_id = $1 and state <> 'gone'`,
    [tenantId],
  );
  for (const { database, server, adminUrl } of rows) {
    const url = adminUrl ? servers.adminUrl({ name: server, adminUrl }) : controlUrl;
    if (!(await isGone(url, database))) return false;
  }
  return true;
}

/** False also when the server cannot be reached. */
async function isGone(serverUrl: string, database: string): Promise<boolean> {
  const find = (server: pg.Client) => server.query('select from pg_database where datname = $1', [database]);
  return withConnection(databaseUrl(serverUrl, 'postgres'), find).then(
    ({ rowCount }) => rowCount === 0,
    () => false,
  );
}
