import type { Tenant } from '../../../control/control-entities.ts';
import type { ControlAddress, Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sizeText } from '../../command/texts.ts';
import type { EarlierData } from '../../databases/copy/fill-database.ts';
import { foreignLeftOut } from '../archive/archive-documents.ts';
import { ArchiveFault } from '../archive/archive-fault.ts';
import { readArchiveRowsOf, recogniseArchive } from '../archive-rows.ts';
import { openBackupTarget } from '../target/open-target.ts';
import type { Target } from '../target/target.ts';
import {
  archivedData,
  membersNotRestored,
  type OpenedArchive,
  openArchive,
} from './archived-data.ts';
import {
  type ArchiveChoice,
  chooseArchive,
  listArchivesOf,
  type StoredArchive,
} from './find-archive.ts';
import { readInstallationId, readTenantKeys, type TenantKeys } from './open-keys.ts';

/**
 * The archives of a tenant, of which one is restored. Finding them needs no identity, so that
 * every host can show a plan.
 */
export interface FoundArchive extends ArchiveChoice {
  readonly target: Target;
  /** Reads the keys that open archives, which only the recovery host has. */
  readonly readKeys: () => Promise<TenantKeys>;
  /** The largest tar that is read where nothing is recorded of an archive. */
  readonly maxBytes?: number | undefined;
}

interface FindOptions {
  /** The slug, as the operator typed it: also an archive without a proof of its writer. */
  readonly withoutMac?: string | undefined;
  readonly maxBytes?: number | undefined;
}

/**
 * Finds an archive of a tenant, without opening it.
 * @param wanted a part of its name; `latest`, or undefined: the newest one
 * @throws {OperatorError} when there is none
 */
export async function findArchive(
  installation: Installation,
  { slug, guid }: Tenant,
  wanted: string | undefined,
  { withoutMac, maxBytes }: FindOptions = {},
): Promise<FoundArchive> {
  if (withoutMac !== undefined && withoutMac !== slug) {
    throw new OperatorError(
      `That is not ${slug}: nothing was changed. Type the slug after --without-mac`,
      {
        usage: true,
      },
    );
  }

  const target = await openBackupTarget(installation);
  await target.check();
  const id = await readInstallationId(installation);
  const rows = await withConnection(installation.controlUrl, control =>
    readArchiveRowsOf(control, target, [guid]),
  );
  const stored = await listArchivesOf(target, id, guid, rows);
  const readKeys = () => readTenantKeys(installation, withoutMac !== undefined);

  const choice = chooseArchive(rows, stored, slug, wanted);
  if (withoutMac !== undefined) requireKnown(slug, choice);
  // The operator knows where the object comes from, which need not be what was recorded.
  const { expected } = choice;
  const trusted = withoutMac === undefined ? expected : { ...expected, row: undefined };

  return { ...choice, expected: trusted, target, readKeys, maxBytes };
}

interface RestoreOptions {
  /**
   * The option of `restore` that names the destination of the data, for the text of a refusal:
   * `--lost`, or empty.
   */
  readonly destination: string;
  /** True if the error is one of those of many tenants, and so has to be short. */
  readonly isOneOfMany?: boolean;
  /**
   * True to restore the newest archive that can be used, and to report the others: the data of
   * the tenant are lost.
   */
  readonly takesEarlier?: boolean;
  /** Receives the archive that is restored. */
  readonly onOpened?: (archive: StoredArchive) => void;
  /** Takes a sentence for the operator. */
  readonly warn: (text: string) => void;
}

/**
 * Runs `restore` on the data of an archive of a tenant, every byte of which is checked before.
 * @throws {OperatorError} that names the archive and the tenant, when it cannot be used, or a
 *   later object cannot; or when this host opens none
 */
export async function restoreArchive<T>(
  { controlUrl }: ControlAddress,
  { slug }: Pick<Tenant, 'slug'>,
  found: FoundArchive,
  options: RestoreOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  const { destination, isOneOfMany = false, onOpened = () => {}, warn } = options;
  const keys = await found.readKeys();
  let name = found.expected.name;

  try {
    if (keys.macKeys === undefined) {
      requireKnown(slug, found);
      for (const { name } of found.later) {
        warn(
          `${name} of ${slug} is newer than what was recorded, and is not taken: without its code nobody knows who has ` +
            'written it.',
        );
      }
    }
    const { archive, opened } = await openNewest(slug, found, keys, options);
    name = archive.name;
    onOpened(archive);
    if (archive !== found.expected && found.later.includes(archive)) {
      warn(
        `${name} of ${slug} is newer than what was recorded, and its code is right: it is taken.`,
      );
    }
    if (keys.macKeys !== undefined && archive.row?.state !== 'complete') {
      await withConnection(controlUrl, control =>
        recogniseArchive(control, found.target, archive, opened),
      );
    }
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

    const subject = isOneOfMany ? '' : `The archive ${name} of ${slug} cannot be restored: `;
    throw new OperatorError(
      `${subject}${error.message}. Nothing was restored. ${remedyOf(error, slug, destination)}`,
      {
        cause: error,
      },
    );
  }
}

/**
 * Opens the newest archive that can be used: first the objects that are later than the newest
 * complete archive, then that one. With `takesEarlier`, then the earlier ones, unless the newest
 * complete one is there and damaged: an operator decides to lose what only that one has.
 * @throws {ArchiveFault} of the expected archive
 * @throws {OperatorError} when a later object cannot be used, unless `takesEarlier`
 */
async function openNewest(
  slug: string,
  { target, expected, later, earlier, maxBytes }: FoundArchive,
  keys: TenantKeys,
  { takesEarlier = false, warn }: Pick<RestoreOptions, 'takesEarlier' | 'warn'>,
): Promise<{ archive: StoredArchive; opened: OpenedArchive }> {
  // Without a proof of the writer, what is recorded is all that tells an archive from others.
  const first = keys.macKeys === undefined ? [] : later;
  let fault: unknown;

  for (const archive of [...first, expected, ...(takesEarlier ? earlier : [])]) {
    try {
      return { archive, opened: await openArchive(target, archive, keys, maxBytes) };
    } catch (error) {
      if (!(error instanceof ArchiveFault)) throw error;
      if (archive === expected) fault = error;

      const isLater = archive !== expected && first.includes(archive);
      if (isLater && error.kind === 'missing') continue;
      if (!takesEarlier && isLater) throw laterFault(slug, archive, expected, error);
      const isDamaged = archive.row?.state === 'complete' && error.kind !== 'missing';
      if (!takesEarlier || isDamaged) throw error;
      warn(`The archive ${archive.name} of ${slug} cannot be used: ${error.message}.`);
    }
  }

  throw fault;
}

/**
 * Requires that the archive that is restored without its code was recorded, or named.
 * @throws {OperatorError} otherwise: whoever can write to the target can make one
 */
function requireKnown(slug: string, { expected, isKnown }: ArchiveChoice): void {
  if (isKnown) return;

  const { name, size, modifiedAt } = expected;
  throw new OperatorError(
    `No list records the newest archive of ${slug}, ${name} (${sizeText(size)}, ${modifiedAt.toISOString()} by the clock ` +
      `of the target): without its code nobody knows who has written it. Nothing was restored. If you know where it ` +
      `comes from: --archive ${name} --without-mac ${slug}`,
  );
}

function laterFault(
  slug: string,
  later: StoredArchive,
  expected: StoredArchive,
  cause: ArchiveFault,
): OperatorError {
  return new OperatorError(
    `${later.name} is newer than the newest archive of ${slug} that is recorded, and cannot be used: ${cause.message}. ` +
      `Nothing was restored. Say which is restored: --archive ${expected.name}, or --archive ${later.name}`,
    { cause },
  );
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
