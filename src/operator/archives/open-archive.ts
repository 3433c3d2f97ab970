import type pg from 'pg';
import type { EarlierData } from '../databases/fill-database.ts';
import { fillTables } from '../databases/fill-tables.ts';
import type { Keyring } from './data-keys.ts';
import { ArchiveFault } from './format/archive-fault.ts';
import { type ArchiveReader, checkRows, readArchive } from './format/archive-file.ts';
import { countRows } from './format/archive-manifest.ts';
import type { LedgerEntry } from './ledger.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/**
 * Opens an archive of a target and runs `work` on it.
 * @throws {ArchiveFault} when the file is missing, is another archive, was changed, or cannot be decrypted
 */
export async function openArchiveFile<T>(
  target: BackupTarget,
  keyring: Pick<Keyring, 'find'>,
  { id, tenant, file }: Pick<LedgerEntry, 'id' | 'tenant' | 'file'>,
  work: (archive: ArchiveReader) => Promise<T>,
): Promise<T> {
  const source = await target.read(file);
  if (!source) throw new ArchiveFault('missing', `${target.description} has no such file`);
  return readArchive(source, { id, tenant }, header => keyring.find(tenant, header.key), work);
}

/**
 * Opens an archive of the ledger and runs `work` on it.
 * @throws {ArchiveFault} as `openArchiveFile`, and when its manifest is not that of the ledger
 */
export function openArchive<T>(
  target: BackupTarget,
  keyring: Keyring,
  entry: LedgerEntry,
  work: (archive: ArchiveReader) => Promise<T>,
): Promise<T> {
  return openArchiveFile(target, keyring, entry, async archive => {
    const { manifest } = archive;
    if (manifest.schemaVersion !== entry.schemaVersion || countRows(manifest) !== entry.rows)
      throw new ArchiveFault('wrong_contents', 'its manifest and the ledger differ');
    return work(archive);
  });
}

/**
 * Fills a database with an archive, as `fillTables` does.
 * @throws {ArchiveFault} when a byte of the archive was changed, or the tables differ from the manifest
 */
export function loadArchive(target: pg.Client, { manifest, tables }: ArchiveReader): Promise<boolean> {
  const explain = (names: string) =>
    new ArchiveFault('wrong_contents', `restored, these tables differ from its manifest: ${names}`);
  return fillTables(target, manifest.tables, tables(), explain);
}

/** The data of an archive, as a restore writes it into a database. */
export function archiveData(target: BackupTarget, keyring: Keyring, archive: LedgerEntry): EarlierData {
  return {
    description: `archive ${archive.id} of ${archive.snapshotAt.toISOString()}`,
    schemaVersion: archive.schemaVersion ?? '',
    check: () => openArchive(target, keyring, archive, checkRows),
    fill: client => openArchive(target, keyring, archive, reader => loadArchive(client, reader)),
  };
}
