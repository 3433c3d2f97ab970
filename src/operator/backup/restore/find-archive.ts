import { OperatorError } from '../../../lib/log/operator-error.ts';
import { compareNewestFirst } from '../archive-list.ts';
import type { ArchiveRow } from '../archive-rows.ts';
import { type ArchiveName, archiveFolder, parseArchiveName } from '../target/archive-name.ts';
import type { StoredObject, Target } from '../target/target.ts';

/** An object of a target that has the name of an archive. */
export interface StoredArchive extends Omit<ArchiveName, 'installation'>, StoredObject {
  /** Its row; undefined: it has none, so nobody knows yet who has written it. */
  readonly row: ArchiveRow | undefined;
}

/**
 * Returns the objects of one database that have names of archives, the newest first.
 * @param tenant the guid of the tenant; null: the control database
 * @param rows those of the tenant, or more
 */
export async function listArchivesOf(
  target: Target,
  installation: string,
  tenant: string | null,
  rows: readonly ArchiveRow[],
): Promise<StoredArchive[]> {
  const byName = new Map(rows.map(row => [row.name, row]));
  const found: StoredArchive[] = [];
  for await (const object of target.list(archiveFolder(installation, tenant))) {
    const archive = parseArchiveName(object.name);
    if (archive) found.push({ ...object, ...archive, row: byName.get(object.name) });
  }

  return found.sort(compareNewestFirst);
}

/** The archives that a restore opens, one after the other, until one can be used. */
export interface ArchiveChoice {
  /**
   * The archive that is restored, as far as is known without an identity: the one that was
   * named, or the newest complete one.
   */
  readonly expected: StoredArchive;
  /**
   * False if nobody has named the expected archive, and no list records it: only its code tells
   * it from an object of a stranger.
   */
  readonly isKnown: boolean;
  /**
   * Objects that are later than the newest complete archive, the newest first: only an identity
   * shows whether they are archives of this installation.
   */
  readonly later: readonly StoredArchive[];
  /** Complete archives that are earlier, the newest first. */
  readonly earlier: readonly StoredArchive[];
}

/**
 * Chooses the newest archive of a database.
 * @param rows those of the database, the newest first
 * @param stored its objects, the newest first
 * @returns undefined when there is none
 */
export function chooseNewest(
  rows: readonly ArchiveRow[],
  stored: readonly StoredArchive[],
): ArchiveChoice | undefined {
  const newest = rows.find(({ state }) => state === 'complete');
  const isLater = ({ row, time }: StoredArchive): boolean =>
    row?.state !== 'complete' && row?.state !== 'removing' && (!newest || time > newest.time);
  const later = stored.filter(isLater);

  if (newest) {
    const earlier = stored.filter(
      ({ name, row }) => row?.state === 'complete' && name !== newest.name,
    );
    return { expected: storedOf(newest, stored), isKnown: true, later, earlier };
  }

  const [expected, ...others] = later;
  return expected && { expected, isKnown: false, later: [], earlier: others };
}

/** Returns the object of a row, also if the target does not list it. */
function storedOf(row: ArchiveRow, stored: readonly StoredArchive[]): StoredArchive {
  const found = stored.find(({ name }) => name === row.name);

  const { name, tenant, time, recipients } = row;
  const size = row.bytes?.size ?? 0;
  return found ?? { name, tenant, time, recipients, row, size, modifiedAt: time };
}

/**
 * Chooses an archive of a tenant.
 * @param rows those of the tenant, the newest first
 * @param stored its objects, the newest first
 * @param wanted a part of its name; `latest`, or undefined: the newest one
 * @throws {OperatorError} when there is none, or there are several
 */
export function chooseArchive(
  rows: readonly ArchiveRow[],
  stored: readonly StoredArchive[],
  slug: string,
  wanted: string | undefined,
): ArchiveChoice {
  if (wanted === undefined || wanted === 'latest') {
    const choice = chooseNewest(rows, stored);
    if (choice) return choice;
  } else {
    const [expected, ...others] = stored.filter(({ name }) => name.includes(wanted));
    if (expected && others.length === 0) {
      return { expected, isKnown: true, later: [], earlier: [] };
    }
    if (expected) {
      throw new OperatorError(
        `Several archives of ${slug} have ${wanted} in their names: give more of one`,
        {
          usage: true,
        },
      );
    }
  }

  throw new OperatorError(
    stored.length === 0
      ? `There is no archive of ${slug}. Make one: bin/backoffice backup run ${slug}`
      : `${slug} has no archive ${wanted}. List them: bin/backoffice backup list ${slug}`,
  );
}
