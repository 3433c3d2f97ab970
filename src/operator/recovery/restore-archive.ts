import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { createKeyring, type Keyring, readKeys } from '../archives/data-keys.ts';
import { ArchiveFault } from '../archives/format/archive-fault.ts';
import { checkRows } from '../archives/format/archive-file.ts';
import { type LedgerEntry, readComplete } from '../archives/ledger.ts';
import { archiveData, openArchive } from '../archives/open-archive.ts';
import type { BackupTarget } from '../archives/targets/backup-target.ts';
import type { EarlierData } from '../databases/fill-database.ts';

export interface ArchiveOptions {
  target: BackupTarget;
  /** The id of the archive, or its beginning; `latest`, or undefined: the newest one. */
  archive?: string | undefined;
  /** The option of `restore` that says where the data goes, for the refusal of an archive: `--lost`, or nothing. */
  destination: string;
  /** Called at the beginning of each step, with its name. */
  onStep?: (step: string) => void;
}

/**
 * Runs `restore` on the data of an archive of a tenant. Every byte of the archive is checked before.
 * @throws {OperatorError} that names the file and the tenant, when the archive is missing, was changed or cannot be
 *   decrypted
 */
export async function restoreArchive<T>(
  installation: Installation,
  source: Tenant,
  { target, archive: id, destination, onStep = () => {} }: ArchiveOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<{ restored: T; archive: LedgerEntry }> {
  const { archive, keyring } = await findArchive(installation, source, target, id);
  try {
    onStep(`checking the archive of ${archive.snapshotAt.toISOString()}`);
    await openArchive(target, keyring, archive, checkRows);
    onStep(`loading the archive of ${archive.snapshotAt.toISOString()}`);
    return { restored: await restore(archiveData(target, keyring, archive)), archive };
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    throw new OperatorError(
      `The archive ${archive.file} of ${source.slug} cannot be restored: ${error.message}. Nothing was restored. ` +
        `Restore another archive: ${restoreCommand(source.slug, destination)}`,
      { cause: error },
    );
  }
}

/**
 * Returns the commands that list the archives of a tenant, and restore one of them.
 * @param destination the option that says where the data goes, such as `--lost`; empty: beside the tenant
 */
export function restoreCommand(slug: string, destination: string): string {
  return `npx backoffice backup list ${slug}; npx backoffice restore ${slug} --archive <id> ${destination}`.trim();
}

/**
 * Returns an archive of a tenant, and what opens it.
 * @param id of the archive, or its beginning; `latest`, or undefined: the newest one
 * @throws {OperatorError} when there is none, or several begin with the id
 */
export async function findArchive(
  { controlUrl, secrets }: Installation,
  { slug, guid }: Tenant,
  target: BackupTarget,
  id: string | undefined,
): Promise<{ archive: LedgerEntry; keyring: Keyring }> {
  return withConnection(controlUrl, async control => {
    const archives = await readComplete(control, target.description, guid);
    return { archive: chooseArchive(archives, slug, id), keyring: createKeyring(await readKeys(control), secrets) };
  });
}

function chooseArchive(archives: readonly LedgerEntry[], slug: string, id: string | undefined): LedgerEntry {
  const found =
    id === undefined || id === 'latest' ? archives.slice(0, 1) : archives.filter(archive => archive.id.startsWith(id));
  const [archive, ...others] = found;
  if (archive && others.length === 0) return archive;
  if (archive) throw new OperatorError(`Several archives begin with ${id}: give more of the id`, { usage: true });
  throw new OperatorError(
    archives.length === 0
      ? `There is no archive of ${slug}. Make one: npx backoffice backup run ${slug}`
      : `${slug} has no archive ${id}. List them: npx backoffice backup list ${slug}`,
  );
}
