import type { Queryable } from '../../postgres/shared-connection.ts';
import type { ArchiveManifest } from './format/archive-manifest.ts';

/** An archive as the control database knows it. */
export interface LedgerEntry {
  readonly id: string;
  /** The guid of the tenant; null for the control database. */
  readonly tenant: string | null;
  /** The slug at the time of the archive; null for the control database. */
  readonly slug: string | null;
  /** The target that has the file (`BackupTarget.description`). */
  readonly target: string;
  readonly file: string;
  readonly state: 'writing' | 'complete' | 'removing';
  readonly keyFingerprint: string;
  readonly server: string;
  readonly database: string;
  /** The counters before the snapshot (`isProvedUnchanged`); null: nothing was proved. */
  readonly proof: string | null;
  readonly schemaVersion: string | null;
  readonly snapshotAt: Date;
  readonly rows: number;
  readonly bytes: number;
  readonly provedAt: Date | null;
  readonly fault: string | null;
  /** Not removed before, because it has rows that a retention removed (`retention/`); null: no such rows. */
  readonly keptUntil: Date | null;
}

const fields = `
  id, tenant_guid as tenant, slug, target, file, state, key_fingerprint as "keyFingerprint", server, database_name as database,
  proof, schema_version as "schemaVersion", snapshot_at as "snapshotAt", coalesce(rows, 0)::float8 as rows,
  coalesce(bytes, 0)::float8 as bytes, proved_at as "provedAt", fault, kept_until as "keptUntil"`;

type Row = { [Field in keyof LedgerEntry]: LedgerEntry[Field] };

/** Returns all archives of a target, the newest first. */
export async function readLedger(control: Queryable, target: string): Promise<LedgerEntry[]> {
  const { rows } = await control.query<Row>(
    `select ${fields} from archives where target = $1 order by snapshot_at desc, id`,
    [target],
  );
  return rows;
}

/**
 * Returns the complete archives of a target, the newest first.
 * @param tenant the guid of their tenant; undefined: all, those of the control database included
 */
export async function readComplete(control: Queryable, target: string, tenant?: string): Promise<LedgerEntry[]> {
  const { rows } = await control.query<Row>(
    `select ${fields} from archives where state = 'complete' and target = $1 and ($2::uuid is null or tenant_guid = $2)
      order by snapshot_at desc, id`,
    [target, tenant],
  );
  return rows;
}

/**
 * Returns the newest complete archive of each database in a target whose key exists, by the guid of the tenant (null:
 * the control database).
 */
export async function readNewest(control: Queryable, target: string): Promise<Map<string | null, LedgerEntry>> {
  const { rows } = await control.query<Row>(
    `select distinct on (tenant_guid) ${fields} from archives a where state = 'complete' and target = $1
        and exists (select from backup_keys k where k.fingerprint = a.key_fingerprint)
      order by tenant_guid, snapshot_at desc`,
    [target],
  );
  return new Map(rows.map(row => [row.tenant, row]));
}

/** An archive that will be written. */
export type PlannedArchive = Pick<
  LedgerEntry,
  'id' | 'tenant' | 'slug' | 'target' | 'file' | 'keyFingerprint' | 'server' | 'database' | 'proof'
>;

/** Records archives before their files are begun, so that the next run finds the files of a killed one. */
export async function planArchives(control: Queryable, archives: readonly PlannedArchive[]): Promise<void> {
  await control.query(
    `insert into archives (id, tenant_guid, slug, target, file, key_fingerprint, server, database_name, proof)
     select * from json_to_recordset($1::json) as planned (id uuid, tenant uuid, slug text, target text, file text,
            "keyFingerprint" text, server text, database text, proof text)`,
    [JSON.stringify(archives)],
  );
}

type Written = Pick<ArchiveManifest, 'snapshotAt' | 'schemaVersion' | 'schemaFingerprint'> &
  Pick<LedgerEntry, 'rows' | 'bytes'>;

/** Records that the file of an archive is complete. */
export async function completeArchive(control: Queryable, id: string, written: Written): Promise<void> {
  await control.query(
    `update archives set state = 'complete', completed_at = now(), snapshot_at = $2, schema_version = $3,
            schema_fingerprint = $4, rows = $5, bytes = $6 where id = $1`,
    [id, written.snapshotAt, written.schemaVersion, written.schemaFingerprint, written.rows, written.bytes],
  );
}

/** Records that the databases of these archives have not changed since. */
export async function markUnchanged(control: Queryable, ids: readonly string[]): Promise<void> {
  await control.query('update archives set unchanged_at = now() where id = any ($1::uuid[])', [ids]);
}

/**
 * Records which complete archives the target does not have, or not in their size. Those whose fault is known already do
 * not count again.
 * @param files sizes in bytes, by name
 * @returns the names of their files
 */
export async function recordMissing(
  control: Queryable,
  target: string,
  files: ReadonlyMap<string, number>,
): Promise<string[]> {
  const complete = await readComplete(control, target);
  const missing = complete.filter(({ fault, file, bytes }) => fault === null && files.get(file) !== bytes);
  for (const { id, file } of missing) {
    const found = files.get(file);
    const fault = found === undefined ? 'it is not in the target' : `it has ${found} bytes`;
    await recordCheck(control, id, 'verified', fault);
  }
  return missing.map(({ file }) => file);
}

/**
 * Records that every byte of an archive was checked, or that it was restored and compared; or what is wrong with it.
 */
export async function recordCheck(
  control: Queryable,
  id: string,
  check: 'verified' | 'proved',
  fault: string | null,
): Promise<void> {
  await control.query(
    `update archives set fault = $2, ${check}_at = case when $2::text is null then now() else ${check}_at end where id = $1`,
    [id, fault],
  );
}

/**
 * Marks archives whose files will be removed: they no longer count as archives.
 * @returns the marked ones; an unneeded archive that a retention has begun to need meanwhile is not marked
 */
export async function markRemoving(
  control: Queryable,
  unreadable: readonly LedgerEntry[],
  unneeded: readonly LedgerEntry[],
): Promise<LedgerEntry[]> {
  const { rows } = await control.query<Row>(
    `update archives set state = 'removing'
      where id = any ($1::uuid[]) or id = any ($2::uuid[]) and (kept_until is null or kept_until < now())
     returning ${fields}`,
    [unreadable.map(({ id }) => id), unneeded.map(({ id }) => id)],
  );
  return rows;
}

/** Forgets an archive whose file is gone. */
export async function forgetArchive(control: Queryable, id: string): Promise<void> {
  await control.query('delete from archives where id = $1', [id]);
}
