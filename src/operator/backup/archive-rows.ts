import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { type GivenNumbers, numbersJson } from '../databases/carry-numbers.ts';
import type { Listing, StoredArchive } from './listing.ts';

/*
 * The rows of the control database about archives: the last one of each database, the findings
 * of drills, and a copy of what a run saw. The listing of the target is the ledger; these rows
 * count only for names that it has.
 */

/**
 * Records the last archive of a database, and the numbers that its sequences had given then.
 */
export async function recordArchive(
  control: Queryable,
  databaseId: string,
  { name, size }: Pick<StoredArchive, 'name' | 'size'>,
  proof: string | null,
  numbers: GivenNumbers,
): Promise<void> {
  await control.query(
    `update tenant_databases set archive = $2, archive_bytes = $3, archive_proof = $4,
            numbers = coalesce(numbers, '{}') || $5::jsonb
      where id = $1`,
    [databaseId, name, size, proof, numbersJson(numbers)],
  );
}

/** The finding of a drill or a verification in an archive of a tenant. */
export interface ArchiveProof {
  readonly name: string;
  /** The guid of the tenant. */
  readonly tenant: string;
  /** The last migration of its schema; null: not known. */
  readonly schemaVersion: string | null;
  /** The time of the last restore without a difference; null: never. */
  readonly provedAt: Date | null;
  readonly checkedAt: Date;
  /** The fault of the archive; null: none was found. */
  readonly fault: string | null;
}

/** Returns the findings of drills, by the names of archives. */
export async function readProofs(control: Queryable): Promise<Map<string, ArchiveProof>> {
  const { rows } = await control.query<{ [Field in keyof ArchiveProof]: ArchiveProof[Field] }>(
    `select name, tenant_guid as tenant, schema_version as "schemaVersion", proved_at as "provedAt",
            checked_at as "checkedAt", fault
       from archive_proofs`,
  );

  return new Map(rows.map(row => [row.name, row]));
}

/**
 * Records what a drill or a verification found. An archive that cannot be used does not count
 * as the last one of its database any more: the next run archives the tenant again.
 * @param check `proved`: it was restored and compared; `checked`: every byte of it was read
 */
export async function recordProof(
  control: Queryable,
  {
    name,
    tenant,
    schemaVersion,
    fault,
  }: Pick<ArchiveProof, 'name' | 'tenant' | 'schemaVersion' | 'fault'>,
  check: 'proved' | 'checked',
): Promise<void> {
  await control.query(
    `insert into archive_proofs (name, tenant_guid, schema_version, proved_at, fault)
     values ($1, $2, $3, case when $5::boolean and $4::text is null then now() end, $4)
         on conflict (name) do update
        set schema_version = coalesce(excluded.schema_version, archive_proofs.schema_version),
            proved_at = coalesce(excluded.proved_at, archive_proofs.proved_at), checked_at = now(),
            fault = excluded.fault`,
    [name, tenant, schemaVersion, fault, check === 'proved'],
  );
  if (fault !== null) {
    await control.query('update tenant_databases set archive = null where archive = $1', [name]);
  }
}

/** Forgets the findings of drills in archives that the target does not list any more. */
export async function forgetProofs(control: Queryable, listing: Listing): Promise<void> {
  const gone = [...(await readProofs(control)).keys()].filter(name => !listing.get(name));
  if (gone.length > 0) {
    await control.query('delete from archive_proofs where name = any ($1)', [gone]);
  }
}

/**
 * Copies the listing of a run into the control database, for pages, metrics and alerts.
 * No decision reads it.
 * @param covered guids of the tenants whose newest archive has all that their database has now;
 *   null among them: the control database
 */
export async function copyListing(
  control: Queryable,
  listing: Listing,
  covered: ReadonlySet<string | null>,
): Promise<void> {
  const folders = listing.owners.flatMap(owner => {
    const archives = listing.of(owner);
    const [newest] = archives;
    if (!newest) return [];

    return [
      {
        tenant: owner,
        archives: archives.length,
        bytes: archives.reduce((sum, { size }) => sum + size, 0),
        newest: newest.name,
        newestAt: newest.time,
        isCovered: covered.has(owner),
      },
    ];
  });

  await control.query(
    `with seen as (
       select * from json_to_recordset($1::json) as seen (tenant uuid, archives integer, bytes bigint,
              newest text, "newestAt" timestamptz, "isCovered" boolean)),
     gone as (
       delete from archive_folders f
        where not exists (select from seen where seen.tenant is not distinct from f.tenant_guid))
     insert into archive_folders as f
            (tenant_guid, archives, bytes, newest, newest_at, covered_at)
     select tenant, archives, bytes, newest, "newestAt", case when "isCovered" then now() else "newestAt" end
       from seen
         on conflict (tenant_guid) do update
        set archives = excluded.archives, bytes = excluded.bytes, newest = excluded.newest,
            newest_at = excluded.newest_at,
            covered_at = case when excluded.newest = f.newest
                              then greatest(excluded.covered_at, f.covered_at) else excluded.covered_at end,
            seen_at = now()`,
    [JSON.stringify(folders)],
  );
}
