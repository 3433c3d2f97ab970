import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { createKeyring, type Keyring, readKeys } from '../archives/data-keys.ts';
import { ArchiveFault } from '../archives/format/archive-fault.ts';
import { type LedgerEntry, readComplete } from '../archives/ledger.ts';
import { archiveData } from '../archives/open-archive.ts';
import type { BackupTarget } from '../archives/targets/backup-target.ts';
import type { EarlierData } from '../databases/fill-database.ts';

interface ArchiveOptions {
  target: BackupTarget;
  archive: LedgerEntry;
  keyring: Keyring;
  /** The option of `restore` that says where the data goes, for the refusal of an archive: `--lost`, or nothing. */
  destination: string;
  /** True for the error of one of many tenants, which is short. */
  isOneOfMany?: boolean;
}

/**
 * Runs `restore` on the data of an archive of a tenant.
 * @throws {OperatorError} that names the file and the tenant, when the archive is missing, was changed or cannot be
 *   decrypted
 */
export async function restoreArchive<T>(
  { slug }: Pick<Tenant, 'slug'>,
  { target, archive, keyring, destination, isOneOfMany = false }: ArchiveOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  try {
    return await restore(archiveData(target, keyring, archive));
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;
    const subject = isOneOfMany ? '' : `The archive ${archive.file} of ${slug} cannot be restored: `;
    throw new OperatorError(
      `${subject}${error.message}. Nothing was restored. Restore another archive: bin/backoffice backup list ${slug}; ` +
        `bin/backoffice restore ${slug} --archive <id> ${destination}`.trim(),
      { cause: error },
    );
  }
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
      ? `There is no archive of ${slug}. Make one: bin/backoffice backup run ${slug}`
      : `${slug} has no archive ${id}. List them: bin/backoffice backup list ${slug}`,
  );
}
