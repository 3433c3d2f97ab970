import type { Tenant } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import type { EarlierData } from '../../databases/fill-database.ts';
import { foreignLeftOut } from '../archive/archive-documents.ts';
import { ArchiveFault } from '../archive/archive-fault.ts';
import type { ArchiveName } from '../target/archive-name.ts';
import { openBackupTarget } from '../target/open-target.ts';
import type { Target } from '../target/target.ts';
import { archivedData, membersNotRestored, openArchive } from './archived-data.ts';
import { chooseArchive, listArchivesOf } from './find-archive.ts';
import { readInstallationId, readTenantKeys, type TenantKeys } from './open-keys.ts';

/** An archive of a tenant. Finding it needs no identity, so that every host can show a plan. */
export interface FoundArchive {
  readonly target: Target;
  readonly archive: ArchiveName;
  /** Reads the keys that open the archive, which only the recovery host has. */
  readonly readKeys: () => Promise<TenantKeys>;
}

/**
 * Finds an archive of a tenant, without opening it.
 * @param wanted a part of its name; `latest`, or undefined: the newest one
 * @param withoutMac the slug, as the operator typed it: also an archive without a proof of its
 *   writer
 * @throws {OperatorError} when there is none
 */
export async function findArchive(
  installation: Installation,
  { slug, guid }: Tenant,
  wanted: string | undefined,
  withoutMac: string | undefined,
): Promise<FoundArchive> {
  if (withoutMac !== undefined && withoutMac !== slug) {
    throw new OperatorError(
      `That is not ${slug}: nothing was changed. Type the slug after --without-mac`,
      {
        usage: true,
      },
    );
  }

  const target = await openBackupTarget();
  await target.check();
  const archives = await listArchivesOf(target, await readInstallationId(installation), guid);
  const readKeys = () => readTenantKeys(installation, withoutMac !== undefined);

  return { target, archive: chooseArchive(archives, slug, wanted), readKeys };
}

interface RestoreOptions {
  /**
   * The option of `restore` that names the destination of the data, for the text of a refusal:
   * `--lost`, or empty.
   */
  readonly destination: string;
  /** True if the error is one of those of many tenants, and so has to be short. */
  readonly isOneOfMany?: boolean;
  /** Takes a sentence for the operator. */
  readonly warn: (text: string) => void;
}

/**
 * Runs `restore` on the data of an archive of a tenant, every byte of which is checked before.
 * @throws {OperatorError} that names the archive and the tenant, when it cannot be used; or
 *   when this host opens none
 */
export async function restoreArchive<T>(
  { slug }: Pick<Tenant, 'slug'>,
  { target, archive, readKeys }: FoundArchive,
  { destination, isOneOfMany = false, warn }: RestoreOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  const keys = await readKeys();

  try {
    const opened = await openArchive(target, archive, keys);
    const restored = await restore(archivedData(opened));

    const left = membersNotRestored(opened);
    if (left.length > 0) {
      warn(
        `The archive of ${slug} has rows of other schemas, which are not restored: ${left.join(', ')}.`,
      );
    }
    const lacking = foreignLeftOut(opened.manifest).map(
      ({ name, reason }) => `${name} (${reason})`,
    );
    if (lacking.length > 0) {
      warn(`The archive of ${slug} lacks what others have made: ${lacking.join(', ')}.`);
    }

    return restored;
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error;

    const subject = isOneOfMany
      ? ''
      : `The archive ${archive.name} of ${slug} cannot be restored: `;
    throw new OperatorError(
      `${subject}${error.message}. Nothing was restored. ${remedyOf(error, slug, destination)}`,
      {
        cause: error,
      },
    );
  }
}

function remedyOf({ kind }: ArchiveFault, slug: string, destination: string): string {
  const other =
    `Restore another archive: bin/backoffice backup list ${slug}; ` +
    `bin/backoffice restore ${slug} --archive <name> ${destination}`.trim();
  if (kind !== 'forged') return other;

  return (
    `${other}. If its key is lost, and you know where it comes from: ` +
    `bin/backoffice restore ${slug} --archive <name> --without-mac ${slug} ${destination}`.trim()
  );
}
