import { OperatorError } from '../../../lib/log/operator-error.ts';
import { type ArchiveName, archiveFolder, parseArchiveName } from '../target/archive-name.ts';
import type { Target } from '../target/target.ts';

/**
 * Returns the archives of one database, the newest first.
 * @param tenant the guid of the tenant; null: the control database
 */
export async function listArchivesOf(
  target: Target,
  installation: string,
  tenant: string | null,
): Promise<ArchiveName[]> {
  const found: ArchiveName[] = [];
  for await (const { name } of target.list(archiveFolder(installation, tenant))) {
    const archive = parseArchiveName(name);
    if (archive) found.push(archive);
  }

  return found.sort(
    (one, other) => other.time.getTime() - one.time.getTime() || (one.name < other.name ? 1 : -1),
  );
}

/**
 * Chooses an archive of a tenant.
 * @param archives the newest first
 * @param wanted a part of its name; `latest`, or undefined: the newest one
 * @throws {OperatorError} when there is none, or there are several
 */
export function chooseArchive(
  archives: readonly ArchiveName[],
  slug: string,
  wanted: string | undefined,
): ArchiveName {
  const isNewest = wanted === undefined || wanted === 'latest';
  const [archive, ...others] = isNewest
    ? archives.slice(0, 1)
    : archives.filter(({ name }) => name.includes(wanted));
  if (archive && others.length === 0) return archive;
  if (archive) {
    throw new OperatorError(
      `Several archives of ${slug} have ${wanted} in their names: give more of one`,
      {
        usage: true,
      },
    );
  }

  throw new OperatorError(
    archives.length === 0
      ? `There is no archive of ${slug}. Make one: bin/backoffice backup run ${slug}`
      : `${slug} has no archive ${wanted}. List them: bin/backoffice backup list ${slug}`,
  );
}
