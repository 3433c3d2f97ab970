import type { ControlStatements } from '../../installation.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import type { LedgerEntry } from './ledger.ts';

/** An archive as the command line and the console show it. Times are in ISO 8601. */
export interface ArchiveSummary
  extends Pick<
    LedgerEntry,
    'id' | 'slug' | 'tenant' | 'file' | 'schemaVersion' | 'rows' | 'bytes' | 'server' | 'database'
  > {
  snapshotAt: string;
  /** Until when the database is known to be the same as the archive; null: nothing is known after the snapshot. */
  unchangedAt: string | null;
  verifiedAt: string | null;
  provedAt: string | null;
  /** What the last verification or drill found. */
  fault: string | null;
  /** Not removed before, because it has rows that a retention removed; null: no such rows. */
  keptUntil: string | null;
}

/** Which archives a list has; what is undefined does not limit it. */
interface ArchiveFilter {
  /** `BackupTarget.description` of the target that has them. */
  target?: string;
  /** The guid of their tenant. */
  guid?: string | undefined;
  limit?: number;
}

/** Returns the complete archives that the filter selects, the newest first. */
export async function listArchives(
  { statements }: ControlStatements,
  { target, guid, limit }: ArchiveFilter,
): Promise<ArchiveSummary[]> {
  return statements.execute(
    `select id, slug, tenant_guid as tenant, file, ${isoTime('snapshot_at')} as "snapshotAt",
            ${isoTime('unchanged_at')} as "unchangedAt", schema_version as "schemaVersion",
            coalesce(rows, 0)::float8 as rows, coalesce(bytes, 0)::float8 as bytes, server, database_name as database,
            ${isoTime('verified_at')} as "verifiedAt", ${isoTime('proved_at')} as "provedAt", fault,
            ${isoTime('kept_until')} as "keptUntil"
       from archives
      where state = 'complete' and (?::text is null or target = ?) and (?::uuid is null or tenant_guid = ?)
      order by snapshot_at desc, id limit ?`,
    [target, target, guid, guid, limit].map(value => value ?? null),
  );
}
