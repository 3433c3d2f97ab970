import type { Queryable } from '../../postgres/shared-connection.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { type NamedArchive, parseArchiveName, timeInName } from './archive-name.ts';
import type { ControlArchiveAccess } from './control-archive.ts';
import type { Keyring } from './data-keys.ts';
import { ArchiveFault } from './format/archive-fault.ts';
import { countRows } from './format/archive-manifest.ts';
import { openArchiveFile } from './open-archive.ts';
import { listFiles, writeMarker } from './target-owner.ts';

const concurrentReads = 4;

/**
 * Makes the ledger of a restored control database, or of one that takes the place of another, say what the target has.
 * So this control database is the one that writes to the target:
 *
 *   1. Archives that are in the ledger of another path of the target are there.
 *   2. Archives of the control database and of its tenants that the ledger lacks, or has as unfinished, are recorded:
 *      they were completed after the restored state, or by the control database that this one replaces.
 *   3. Entries whose files are gone are forgotten: the run that made the restored archive removed them afterwards. The
 *      newest one of a tenant stays, because no retention removes it: without its file, something is lost.
 *
 * @returns how many were recorded
 */
export async function matchLedger(control: Queryable, access: ControlArchiveAccess): Promise<number> {
  const { target } = access;
  const { description } = target;
  const files = await listFiles(target);
  await writeMarker(control, target);
  await control.query('update archives set target = $1 where target <> $1 and file = any ($2::text[])', [
    description,
    [...files.keys()],
  ]);
  const unknown = await findUnknown(control, [...files.keys()]);
  await runConcurrently(unknown, concurrentReads, async archive => {
    await record(control, access, archive, files.get(archive.file) ?? 0);
  });
  await control.query(
    `delete from archives a where target = $1 and file <> all ($2::text[])
        and (exists (select from archives newer where newer.target = $1 and newer.state = 'complete'
                        and newer.tenant_guid is not distinct from a.tenant_guid and newer.snapshot_at > a.snapshot_at)
             or not exists (select from tenants where guid = a.tenant_guid))`,
    [description, [...files.keys()]],
  );
  return unknown.length;
}

interface UnknownArchive extends NamedArchive {
  readonly file: string;
}

/** Returns the archives that the ledger lacks: not those of tenants that the control database does not have. */
async function findUnknown(control: Queryable, files: readonly string[]): Promise<UnknownArchive[]> {
  const named = files.flatMap(file => {
    const archive = parseArchiveName(file);
    return archive ? [{ ...archive, file }] : [];
  });
  const byId = new Map(named.map(archive => [archive.id, archive]));
  const { rows } = await control.query<{ id: string }>(
    `select id from unnest($1::uuid[], $2::uuid[]) as found (id, tenant)
      where not exists (select from archives a where a.id = found.id and a.state <> 'writing')
        and (tenant is null or exists (select from tenants where guid = tenant))`,
    [[...byId.keys()], [...byId.values()].map(({ tenant }) => tenant)],
  );
  return rows.flatMap(({ id }) => byId.get(id) ?? []);
}

async function record(
  control: Queryable,
  access: ControlArchiveAccess,
  archive: UnknownArchive,
  bytes: number,
): Promise<void> {
  const { id, tenant, file } = archive;
  const facts = await readFacts(access, archive);
  await control.query(
    `insert into archives (id, tenant_guid, slug, target, file, state, key_fingerprint, server, database_name,
                           schema_version, schema_fingerprint, snapshot_at, completed_at, rows, bytes, fault)
     values ($1, $2, (select slug from tenants where guid = $2), $3, $4, 'complete', $5, $6, $7, $8, $9, $10, now(), $11, $12, $13)
         on conflict (id) do update
        set state = 'complete', schema_version = excluded.schema_version, schema_fingerprint = excluded.schema_fingerprint,
            snapshot_at = excluded.snapshot_at, completed_at = now(), rows = excluded.rows, bytes = excluded.bytes,
            fault = excluded.fault`,
    [
      ...[id, tenant, access.target.description, file, facts.key, facts.server, facts.database, facts.schemaVersion],
      ...[facts.schemaFingerprint, facts.snapshotAt, facts.rows, bytes, facts.fault],
    ],
  );
}

async function readFacts({ target, keyring }: ControlArchiveAccess, archive: UnknownArchive) {
  let key = '';
  const find: Keyring['find'] = (tenant, fingerprint) => {
    key = fingerprint;
    return keyring.find(tenant, fingerprint);
  };
  try {
    return await openArchiveFile(target, { find }, archive, async ({ manifest }) => {
      const { snapshotAt, schemaVersion, schemaFingerprint, source } = manifest;
      return { key, snapshotAt, schemaVersion, schemaFingerprint, ...source, rows: countRows(manifest), fault: null };
    });
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    const nothing = { schemaVersion: null, schemaFingerprint: null, server: '', database: '', rows: null };
    return { ...nothing, key, snapshotAt: timeInName(archive.file), fault: error.message };
  }
}
