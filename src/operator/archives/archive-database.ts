import type { Socket } from 'node:net';
import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { readTables } from '../databases/fill-tables.ts';
import { canonicalTextSettings, copyList } from '../schema/tenant-tables.ts';
import type { DataKey } from './data-keys.ts';
import { writeArchive } from './format/archive-file.ts';
import { type ArchivedTable, type ArchiveManifest, countRows } from './format/archive-manifest.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** A database that is to be archived. */
export interface ArchiveSource {
  /** With the rights of the operator. */
  readonly url: string;
  /** The tenant; null for the control database. */
  readonly tenant: { readonly guid: string; readonly slug: string; readonly name: string } | null;
  readonly server: string;
  readonly database: string;
  /** Tables whose rows are not archived. */
  readonly except: readonly string[];
  readonly schemaFingerprint: string | null;
}

/** What was written: the manifest, the number of rows, and the size of the file. */
interface WrittenArchive extends ArchiveManifest {
  readonly rows: number;
  readonly bytes: number;
}

/** Archives one database, as it is at one moment. Nobody waits for it: it only reads, and takes no lock of a row. */
export async function archiveDatabase(
  source: ArchiveSource,
  { id, file, key }: { readonly id: string; readonly file: string; readonly key: DataKey },
  target: BackupTarget,
): Promise<WrittenArchive> {
  const work = async (client: pg.Client): Promise<WrittenArchive> => {
    await client.query('begin isolation level repeatable read read only');
    const manifest = await readManifest(client, source);
    const header = { format: 1 as const, id, tenant: source.tenant?.guid ?? null, key: key.fingerprint };
    const rowsOf = (table: ArchivedTable) => client.query(copyTo(`copy ${copyList(table)} to stdout`));
    try {
      const bytes = await target.write(file, writeArchive(header, key.key, manifest, rowsOf));
      return { ...manifest, rows: countRows(manifest), bytes };
    } catch (error) {
      // The server may be sending a table that nobody reads: a connection in this state does not end by itself.
      (client as unknown as { connection: { stream: Socket } }).connection.stream.destroy();
      throw error;
    }
  };
  return withConnection(source.url, work, { settings: canonicalTextSettings });
}

interface Facts {
  version: string | null;
  guid: string | null;
  at: string;
  postgres: string;
}

async function readManifest(client: pg.Client, source: ArchiveSource): Promise<ArchiveManifest> {
  const { tenant, server, database, except, schemaFingerprint } = source;
  const { rows } = await client.query<Facts>(
    `select (select name from migrations order by id desc limit 1) as version,
            ${tenant ? '(select guid from tenant_identity)' : 'null'} as guid,
            to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, current_setting('server_version') as postgres`,
  );
  const { version, guid, at, postgres } = rows[0] ?? {};
  if (tenant && guid !== tenant.guid)
    throw new OperatorError(`database ${database} belongs to another tenant: run bin/backoffice doctor`);
  if (!version || !at || !postgres) throw new OperatorError(`database ${database} has no schema version`);
  return {
    kind: tenant ? 'tenant' : 'control',
    tenant: tenant && { guid: tenant.guid, slug: tenant.slug, name: tenant.name },
    schemaVersion: version,
    schemaFingerprint,
    snapshotAt: at,
    source: { server, database, postgres },
    tables: await readTables(client, except),
  };
}
