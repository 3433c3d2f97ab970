import type { Queryable } from '../../../postgres/shared-connection.ts';
import { ArchiveFault } from '../../backup/archive/archive-fault.ts';
import { controlArchiveId } from '../../backup/recorded-archive.ts';
import { listFiles, unknownControlArchives } from '../../backup/target-owner.ts';
import { type ControlArchiveAccess, openControlArchive, timeInName } from './control-archive.ts';

/**
 * Makes the ledger of a restored control database, or of one that takes the place of another, say what the target has. So
 * this control database is the one that writes to the target:
 *
 *   1. Archives of the control database that the ledger lacks are recorded: they were made after the restored state, or by
 *      the control database that this one replaces.
 *   2. Entries whose files are gone are forgotten: the run that made the restored archive removed them afterwards. The
 *      newest one of a tenant stays, because no retention removes it: without its file, something is lost.
 *
 * @returns how many were recorded
 */
export async function matchLedger(control: Queryable, access: ControlArchiveAccess): Promise<number> {
  const { description } = access.target;
  const files = await listFiles(access.target);
  const unknown = await unknownControlArchives(control, files.keys());
  for (const file of unknown) {
    const facts = await readFacts(access, file);
    await control.query(
      `insert into archives (id, target, file, state, key_fingerprint, server, database_name, schema_version, snapshot_at,
                             completed_at, rows, bytes, fault)
       values ($1, $2, $3, 'complete', $4, 'control', $5, $6, $7, now(), $8, $9, $10)`,
      [
        ...[controlArchiveId(file), description, file, facts.key, facts.database, facts.schemaVersion],
        ...[facts.snapshotAt, facts.rows, files.get(file), facts.fault],
      ],
    );
  }
  await control.query(
    `delete from archives a where target = $1 and file <> all ($2::text[])
        and (exists (select from archives newer where newer.target = $1 and newer.state = 'complete'
                        and newer.tenant_guid is not distinct from a.tenant_guid and newer.snapshot_at > a.snapshot_at)
             or not exists (select from tenants where guid = a.tenant_guid))`,
    [description, [...files.keys()]],
  );
  return unknown.length;
}

async function readFacts(access: ControlArchiveAccess, file: string) {
  let key = '';
  try {
    return await openControlArchive(
      access,
      file,
      async ({ manifest: { snapshotAt, schemaVersion, source, tables } }) => ({
        ...{ key, snapshotAt, schemaVersion, database: source.database, fault: null },
        rows: tables.reduce((sum, table) => sum + table.rows, 0),
      }),
      header => {
        key = header.key;
      },
    );
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    const snapshotAt = timeInName(file);
    return { key, snapshotAt, schemaVersion: null, database: '', rows: null, fault: error.message };
  }
}
