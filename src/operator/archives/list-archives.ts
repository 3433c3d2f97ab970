import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { shareConnection } from '../../postgres/shared-connection.ts';
import { findArchives } from './find-archives.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** An archive as the command line shows it. Times are in ISO 8601. */
export interface ArchiveSummary {
  id: string;
  /** The tenant at the time of the archive; null for the control database. */
  slug: string | null;
  tenant: string | null;
  file: string;
  snapshotAt: string;
  /** Until when the database is known to be the same as the archive; null: nothing is known after the snapshot. */
  unchangedAt: string | null;
  schemaVersion: string | null;
  rows: number;
  bytes: number;
  server: string;
  database: string;
  verifiedAt: string | null;
  provedAt: string | null;
  /** What the last verification or drill found. */
  fault: string | null;
  /** Not removed before, because it has rows that a retention removed; null: no such rows. */
  keptUntil: string | null;
}

/** Returns the archives of the target, the newest first. @throws {OperatorError} when there is no such tenant */
export async function listArchives(
  { controlUrl }: Installation,
  target: BackupTarget,
  slug: string | undefined,
): Promise<ArchiveSummary[]> {
  const archives = await withConnection(controlUrl, client => findArchives(shareConnection(client), target, slug));
  return archives.map(archive => ({
    id: archive.id,
    slug: archive.slug,
    tenant: archive.tenant,
    file: archive.file,
    snapshotAt: archive.snapshotAt.toISOString(),
    unchangedAt: archive.unchangedAt?.toISOString() ?? null,
    schemaVersion: archive.schemaVersion,
    rows: archive.rows,
    bytes: archive.bytes,
    server: archive.server,
    database: archive.database,
    verifiedAt: archive.verifiedAt?.toISOString() ?? null,
    provedAt: archive.provedAt?.toISOString() ?? null,
    fault: archive.fault,
    keptUntil: archive.keptUntil?.toISOString() ?? null,
  }));
}
