import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { storableText } from '../command/texts.ts';
import { type GivenNumbers, numbersJson } from '../databases/copy/carry-numbers.ts';
import type { ArchiveBytes } from './archive/archive-bytes.ts';
import type { CheckedArchive } from './archive/open-archive.ts';
import type { ArchiveName } from './target/archive-name.ts';
import type { Target } from './target/target.ts';

/*
 * The list of archives: the table `archives` of the control database, with a row for each object
 * that a run has written, or that was recognised by its code (`mac`). Whoever can write to the
 * target can choose names, times and bytes of objects, and none of these rows.
 *
 * States, and who writes each:
 *
 *   - `writing`: a run, durably, before it writes the object.
 *   - `complete`: the run, when the target has the object, with its size and SHA-256. A command
 *     with an identity, when it has read another object and its code is right.
 *   - `removing`: a command that removes, durably, before it does. So it stays while the target
 *     refuses, with the reason.
 *   - `gone`: the command, when the object is removed. A run, when the target does not list the
 *     object of a complete row, or lists another size or checksum. A listing that has the object
 *     again makes it `complete` again. The row goes 30 days later.
 *   - `unproved`: `control restore`, `control after-restore` and `backup init --take-over`, in
 *     place of `writing`: the run that wrote it may have ended without the knowledge of this
 *     control database. `control restore` adds the objects that are newer than its archive.
 *
 * Readers:
 *
 *   - Newest, keep, prune, retention, metrics and pages count complete rows of the present
 *     target, and nothing else. Another target has no rows, so everybody is archived there once.
 *   - A restore reads also newer objects without such a row, and takes one whose code is right.
 *   - `doctor` names the objects without a row. Only the purge of a tenant removes them.
 *
 * A killed process leaves
 *
 *   - a row in `writing`, with or without its object: removed by the run that has written a
 *     newer archive of the database. No other process can have written it, because each claim of
 *     the target shuts out the former ones (`writer.ts`);
 *   - a row in `removing`, with or without its object: removed by the next run.
 */

/** The state of an archive that may be in the target. */
export type ArchiveState = 'writing' | 'complete' | 'removing' | 'unproved';

/** The database of an archive, and its state before the snapshot. */
export interface ArchivedState {
  /** The id in `tenant_databases`; null: the control database. */
  readonly databaseId: string | null;
  readonly epoch: string | null;
  /** The fingerprint of the change counters; null: they prove nothing. */
  readonly counters: string | null;
}

/** A row of the list. */
export interface ArchiveRow
  extends Pick<ArchiveName, 'name' | 'tenant' | 'time' | 'recipients'>,
    ArchivedState {
  readonly state: ArchiveState;
  readonly schemaVersion: string | null;
  /** The bytes of the object; null unless the state is, or was, `complete`. */
  readonly bytes: ArchiveBytes | null;
  /** The checksum of the store, as the first listing has had it. */
  readonly checksum: string | null;
  /** The time at which the last drill of it began; null: never. */
  readonly drilledAt: Date | null;
  /** The time of the last restore without a difference; null: never. */
  readonly provedAt: Date | null;
  /** The fault that a drill or a verification found; null: none. */
  readonly fault: string | null;
}

const columns = `
  name, tenant_guid as tenant, archived_at as time, recipients, state, database_id as "databaseId", epoch, counters,
  schema_version as "schemaVersion",
  case when sha256 is not null
       then json_build_object('size', bytes, 'sha256', sha256, 'unpackedBytes', unpacked_bytes) end as bytes,
  store_checksum as checksum, drilled_at as "drilledAt", proved_at as "provedAt", fault`;

/** SQL of the target whose rows count, for readers that do not know `BACKUP_TARGET`. */
export const presentTarget = '(select backup_target from installation)';

type Stored = { [Field in keyof ArchiveRow]: ArchiveRow[Field] };

/** Returns the rows of a target whose objects it may have. */
export async function readArchiveRows(
  control: Queryable,
  { description }: Pick<Target, 'description'>,
): Promise<ArchiveRow[]> {
  const { rows } = await control.query<Stored>(
    `select ${columns} from archives where target = $1 and state <> 'gone'`,
    [description],
  );

  return rows;
}

/**
 * Returns the rows of some databases, the newest first.
 * @param owners guids of tenants; null among them: the control database
 */
export async function readArchiveRowsOf(
  control: Queryable,
  { description }: Pick<Target, 'description'>,
  owners: readonly (string | null)[],
): Promise<ArchiveRow[]> {
  const { rows } = await control.query<Stored>(
    `select ${columns} from archives
      where target = $1 and state <> 'gone' and (tenant_guid = any ($2::uuid[]) or $3 and tenant_guid is null)
      order by archived_at desc, name desc`,
    [description, owners.filter(owner => owner !== null), owners.includes(null)],
  );

  return rows;
}

/** Returns the time of the control database, by which archives are named. */
export async function readControlTime(control: Queryable): Promise<Date> {
  const { rows } = await control.query<{ now: Date }>('select clock_timestamp() as now');

  return rows[0]?.now ?? new Date(Number.NaN);
}

/** Records that an object is about to be written. */
export async function recordWriting(
  control: Queryable,
  { description }: Target,
  { name, tenant, time, recipients }: ArchiveName,
  { databaseId, epoch, counters }: ArchivedState,
): Promise<void> {
  await control.query(
    `insert into archives (target, name, tenant_guid, archived_at, state, recipients, database_id, epoch, counters)
     values ($1, $2, $3, $4, 'writing', $5, $6, $7, $8)`,
    [description, name, tenant, time, recipients, databaseId, epoch, counters],
  );
}

/**
 * Records that the target has an object whole, and the numbers that the sequences of its
 * database had given then.
 */
export async function completeArchive(
  control: Queryable,
  { description }: Target,
  { name, databaseId, schemaVersion }: ArchiveRow,
  { size, sha256, unpackedBytes }: ArchiveBytes,
  numbers: GivenNumbers,
): Promise<void> {
  await control.query(
    `with given as (
       update tenant_databases set numbers = coalesce(numbers, '{}') || $8::jsonb where id = $7)
     update archives
        set state = 'complete', bytes = $3, sha256 = $4, unpacked_bytes = $5, schema_version = $6, covered_at = now()
      where target = $1 and name = $2`,
    [
      description,
      name,
      size,
      sha256,
      unpackedBytes,
      schemaVersion,
      databaseId,
      numbersJson(numbers),
    ],
  );
}

/** Forgets an object that its run could not write, and has removed. */
export async function forgetArchive(
  control: Queryable,
  { description }: Target,
  { name }: ArchiveName,
): Promise<void> {
  await control.query(
    `delete from archives where target = $1 and name = $2 and state = 'writing'`,
    [description, name],
  );
}

/** Records that objects are about to be removed; ignores names without a row. */
export async function markRemoving(
  control: Queryable,
  { description }: Target,
  names: readonly string[],
): Promise<void> {
  if (names.length === 0) return;

  await control.query(
    `update archives set state = 'removing' where target = $1 and name = any ($2) and state <> 'gone'`,
    [description, names.map(storableText)],
  );
}

/** Records that all objects of a tenant are about to be removed. */
export async function markTenantRemoving(
  control: Queryable,
  { description }: Target,
  guid: string,
): Promise<void> {
  await control.query(
    `update archives set state = 'removing' where target = $1 and tenant_guid = $2 and state <> 'gone'`,
    [description, guid],
  );
}

/** An object that the target has not removed. */
export interface Unremoved {
  readonly name: string;
  readonly error: string;
}

/** Records which objects were removed, and why others were not. */
export async function recordRemovals(
  control: Queryable,
  target: Target,
  removed: readonly string[],
  notRemoved: readonly Unremoved[],
): Promise<void> {
  if (removed.length > 0) {
    await control.query(
      `with never_complete as (
         delete from archives where target = $1 and name = any ($2) and sha256 is null)
       update archives set state = 'gone', removed_at = now(), error = null
        where target = $1 and name = any ($2) and sha256 is not null`,
      [target.description, removed],
    );
  }
  await recordFound(control, target, notRemoved);
}

/**
 * Records the end of a removal of all objects of a tenant.
 * @param left objects that the target still has, or versions of them
 * @param error why; null: nothing is left
 */
export async function recordTenantRemoved(
  control: Queryable,
  { description }: Target,
  guid: string,
  left: readonly string[],
  error: string | null,
): Promise<void> {
  const isUnknown = left.length === 0 && error !== null;

  await control.query(
    `update archives a
        set state = case when is_left then 'removing' else 'gone' end,
            removed_at = case when is_left then null else now() end,
            error = case when is_left then $4 end
       from (select name, $5 or exists (select from unnest($3::text[]) as l where starts_with(l, name)) as is_left
               from archives where target = $1 and tenant_guid = $2) as found
      where a.target = $1 and a.name = found.name and a.state <> 'gone'`,
    [description, guid, left.map(storableText), error, isUnknown],
  );
}

/** A fact that a command has found about the object of a row. */
export interface FoundFact {
  readonly name: string;
  /** True: the target does not have the object of a complete row any more. */
  readonly isGone?: boolean;
  /**
   * The reason why it was not removed; or its fault, as a sentence, if it is gone: null of one
   * that is not the newest of its database.
   */
  readonly error?: string | null;
  /** The checksum that the store has of it. */
  readonly checksum?: string | null;
}

/** Records facts about the objects of rows; a fact that is left out stays as it is. */
export async function recordFound(
  control: Queryable,
  { description }: Target,
  facts: readonly FoundFact[],
): Promise<void> {
  if (facts.length === 0) return;

  await control.query(
    `update archives a
        set state = case when "isGone" then 'gone' else a.state end,
            removed_at = case when "isGone" then now() else a.removed_at end,
            error = case when "isGone" or found.error is not null then found.error else a.error end,
            store_checksum = coalesce(found.checksum, a.store_checksum)
       from json_to_recordset($2::json) as found (name text, "isGone" boolean, error text, checksum text)
      where a.target = $1 and a.name = found.name and ("isGone" is not true or a.state = 'complete')`,
    [description, JSON.stringify(facts)],
  );
}

/** An object of a listing, with the checksum of the store. */
export interface ListedBytes {
  readonly name: string;
  readonly size: number;
  readonly checksum: string | null;
}

/**
 * Makes rows complete again whose objects are listed as they were written.
 * @param state `gone`: they were missing; `removing`: they were to be removed, and shall stay
 * @returns these rows
 */
export async function reviveArchives(
  control: Queryable,
  { description }: Target,
  listed: readonly ListedBytes[],
  state: 'gone' | 'removing',
): Promise<ArchiveRow[]> {
  if (listed.length === 0) return [];

  const { rows } = await control.query<Stored>(
    `update archives a set state = 'complete', removed_at = null, error = null
       from json_to_recordset($2::json) as listed (name text, size bigint, checksum text)
      where a.target = $1 and a.name = listed.name and a.state = $3 and a.sha256 is not null and a.bytes = listed.size
        and coalesce(a.store_checksum, listed.checksum) is not distinct from listed.checksum
     returning ${columns.replace(/^\s*name/, 'a.name')}`,
    [description, JSON.stringify(listed), state],
  );

  return rows;
}

/** Records that databases are unchanged since these archives. */
export async function recordCovered(
  control: Queryable,
  { description }: Target,
  names: readonly string[],
): Promise<void> {
  await control.query(
    'update archives set covered_at = now() where target = $1 and name = any ($2)',
    [description, names],
  );
}

/** Forgets archives, in any target, that are gone for 30 days. */
export async function forgetGone(control: Queryable): Promise<void> {
  await control.query(
    `delete from archives where state = 'gone' and removed_at < now() - interval '30 days'`,
  );
}

/** Records that a drill begins with an archive, whatever becomes of it. */
export async function recordDrilled(
  control: Queryable,
  { description }: Pick<Target, 'description'>,
  name: string,
): Promise<void> {
  await control.query('update archives set drilled_at = now() where target = $1 and name = $2', [
    description,
    name,
  ]);
}

/**
 * Records what a drill or a verification found. An archive with a fault is not current any more:
 * the next run archives the database again.
 * @param check `proved`: it was restored and compared; `checked`: every byte of it was read
 */
export async function recordProof(
  control: Queryable,
  { description }: Pick<Target, 'description'>,
  name: string,
  fault: string | null,
  check: 'proved' | 'checked',
): Promise<void> {
  await control.query(
    `update archives
        set fault = $3,
            proved_at = case when $4 and $3::text is null then now() else proved_at end
      where target = $1 and name = $2`,
    [description, name, fault, check === 'proved'],
  );
}

/**
 * Records an archive whose code was right as complete, unless it is to be removed.
 */
export async function recogniseArchive(
  control: Queryable,
  { description }: Pick<Target, 'description'>,
  { name, tenant, time, recipients }: Pick<ArchiveName, 'name' | 'tenant' | 'time' | 'recipients'>,
  { bytes, manifest }: CheckedArchive,
): Promise<void> {
  const { size, sha256, unpackedBytes } = bytes;

  await control.query(
    `insert into archives as a (target, name, tenant_guid, archived_at, state, recipients, schema_version,
            bytes, sha256, unpacked_bytes, covered_at)
     values ($1, $2, $3, $4, 'complete', $5, $6, $7, $8, $9, $4)
         on conflict (target, name) do update
        set state = 'complete', schema_version = excluded.schema_version, bytes = excluded.bytes, sha256 = excluded.sha256,
            unpacked_bytes = excluded.unpacked_bytes, store_checksum = null, fault = null, error = null,
            removed_at = null, covered_at = coalesce(a.covered_at, excluded.covered_at)
      where a.state in ('writing', 'unproved', 'gone')`,
    [
      description,
      name,
      tenant,
      time,
      recipients,
      manifest.schemaVersion,
      size,
      sha256,
      unpackedBytes,
    ],
  );
}

/**
 * Makes the rows of all unfinished writes `unproved`: the control database is a copy of an
 * earlier state, and the run may have ended.
 */
export async function doubtUnfinished(control: Queryable): Promise<void> {
  await control.query(`update archives set state = 'unproved' where state = 'writing'`);
}

/** The facts that a restored control database does not have. */
export interface RestoredList {
  /** The archive that was restored, whose code was right; undefined: it was another source. */
  readonly archive: (ArchiveName & CheckedArchive) | undefined;
  /** The time of the restored state. */
  readonly at: Date;
  /** The objects of the installation. */
  readonly objects: readonly (ArchiveName & { readonly size: number })[];
}

/**
 * Brings the list of a restored control database up to date with a target, whose objects it does
 * not open: the archive that was restored is complete, and the objects that are later are
 * unproved. If the target has another name here (a folder that is mounted elsewhere), the rows
 * get it: the restored archive shows that it is the same target.
 */
export async function restoreList(
  control: Queryable,
  target: Pick<Target, 'description'>,
  { archive, at, objects }: RestoredList,
): Promise<void> {
  const { description } = target;

  if (archive) {
    await control.query(
      `update archives set target = $1
        where target = (select target from archives where name = $2 and target <> $1 order by 1 limit 1)
          and not exists (select from archives where target = $1)`,
      [description, archive.name],
    );
    await recogniseArchive(control, target, archive, archive);
  }

  await control.query(
    `insert into archives (target, name, tenant_guid, archived_at, state, recipients, bytes)
     select $1, name, tenant, time, 'unproved', recipients, size
       from json_to_recordset($2::json)
            as listed (name text, tenant uuid, time timestamptz, recipients text, size bigint)
         on conflict do nothing`,
    [description, JSON.stringify(objects.filter(({ time }) => time > at))],
  );
  await control.query('update installation set backup_target = $1', [description]);
}
