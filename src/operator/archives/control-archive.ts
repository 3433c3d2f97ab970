import { controlHead } from '../../control/control-version.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../postgres/migration-steps.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';
import { controlArchiveId, timeInName } from './archive-name.ts';
import { createKeyring, type Keyring, opensKey, type SealedKey } from './data-keys.ts';
import { ArchiveFault } from './format/archive-fault.ts';
import type { ArchiveReader } from './format/archive-file.ts';
import { loadArchive, openArchiveFile } from './open-archive.ts';
import { readTargetKeys } from './target-keys.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** What opens the archives of the control database. */
export interface ControlArchiveAccess {
  readonly target: BackupTarget;
  /** The keys of the target. */
  readonly keys: readonly SealedKey[];
  readonly keyring: Keyring;
}

/**
 * Reads what opens the archives of the control database in a target.
 * @throws {OperatorError} when the target has no keys, or the master key opens none of them
 */
export async function openControlArchives(target: BackupTarget, secrets: SecretBox): Promise<ControlArchiveAccess> {
  const keys = await readTargetKeys(target);
  if (keys.length === 0)
    throw new OperatorError(
      `${target.description} has no keys of archives: it is not mounted, or not the BACKUP_TARGET of the installation`,
    );
  if (!keys.some(key => key.tenant === null && opensKey(secrets, key)))
    throw new OperatorError(
      `MASTER_KEY opens no archive of the control database in ${target.description}: set the master key of the lost installation`,
    );
  return { target, keys, keyring: createKeyring(keys, secrets) };
}

/** An archive of the control database in a target. */
interface ControlArchive {
  readonly file: string;
  /** The time of its snapshot; that in the name of its file if the archive cannot be opened. */
  readonly at: Date;
}

const concurrentReads = 4;

/**
 * Returns the archives of the control database, the newest first. The time of an archive is encrypted in it: a
 * person who can write to the target cannot make an old archive the newest by a newer name.
 */
export async function listControlArchives(access: ControlArchiveAccess): Promise<ControlArchive[]> {
  const names = await Array.fromAsync(access.target.list('control/'), ({ name }) => name);
  const files = names.filter(name => controlArchiveId(name));
  const archives = await runConcurrently(files, concurrentReads, async file => ({
    file,
    at: await timeOf(access, file),
  }));
  return archives.sort((a, b) => b.at.getTime() - a.at.getTime() || (a.file < b.file ? 1 : -1));
}

async function timeOf(access: ControlArchiveAccess, file: string): Promise<Date> {
  try {
    return await openControlArchive(access, file, async ({ manifest }) => new Date(manifest.snapshotAt));
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    return timeInName(file);
  }
}

/**
 * Loads an archive of the control database into an empty database. Every byte of it is checked before its rows are
 * visible.
 * @throws {ArchiveFault} when the archive is missing, was changed, or cannot be decrypted
 */
export async function loadControlArchive(url: string, access: ControlArchiveAccess, file: string): Promise<void> {
  await openControlArchive(access, file, async archive => {
    await createControlSchema(url, archive.manifest.schemaVersion);
    await withConnection(url, client => loadArchive(client, archive), { settings: canonicalTextSettings });
  });
}

/**
 * Opens an archive of the control database and runs `work` on it.
 * @throws {ArchiveFault} when it is missing, was changed, or cannot be decrypted
 */
function openControlArchive<T>(
  { target, keyring }: ControlArchiveAccess,
  file: string,
  work: (archive: ArchiveReader) => Promise<T>,
): Promise<T> {
  return openArchiveFile(target, keyring, { id: controlArchiveId(file) ?? '', tenant: null, file }, work);
}

/** Brings an empty control database to an earlier version. @throws {OperatorError} when this build does not know it */
export async function createControlSchema(controlUrl: string, version: string): Promise<void> {
  const migrations = await loadMigrations('control');
  const last = migrations.findIndex(({ name }) => name === version);
  if (last < 0)
    throw new OperatorError(
      `The data is of version ${version}, which this build (${await controlHead()}) does not know: use the newer build`,
    );
  await runMigrations(controlUrl, migrations.slice(0, last + 1));
}
