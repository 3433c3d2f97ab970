import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';

export type MigrationFolder = 'control' | 'tenant';

const migrationFile = /^\d{4}-[a-z0-9-]+\.ts$/;
const pageFile = /^\d{4}-[a-z0-9-]+\.sql$/;

/** Returns the URL of a folder of migrations. */
export function folderUrl(folder: MigrationFolder): URL {
  return new URL(`../../../migrations/${folder}/`, import.meta.url);
}

/**
 * Returns the names of all migrations of a folder in the order in which they run. Opens no
 * migration file.
 */
export async function migrationNames(folder: MigrationFolder): Promise<string[]> {
  const files = await readdir(folderUrl(folder));
  return files
    .filter(file => migrationFile.test(file))
    .sort()
    .map(file => file.slice(0, -'.ts'.length));
}

/**
 * Returns the digests of the pages of SQL of a folder, by the names of their migrations, in the
 * order of these: SHA-256 of the text with LF, in hexadecimal. Each database records them,
 * because a page that was edited has made another schema under the same name.
 */
export async function pageDigests(folder: MigrationFolder): Promise<Map<string, string>> {
  const files = (await readdir(folderUrl(folder))).filter(file => pageFile.test(file)).sort();
  const digests = files.map(async file => {
    const text = await readFile(new URL(file, folderUrl(folder)), 'utf8');
    const digest = createHash('sha256').update(text.replaceAll('\r\n', '\n')).digest('hex');
    return [file.slice(0, -'.sql'.length), digest] as const;
  });
  return new Map(await Promise.all(digests));
}

/**
 * The migrations that a database records, with the digests of their pages; null for one without
 * a page.
 */
export type RecordedMigrations = Readonly<Record<string, string | null>>;

/**
 * SQL for the `RecordedMigrations` of a database; null while there is none. It also reads a
 * table without the column `digest`, which no build of this schema has made.
 */
export const recordedMigrations = `(select json_object_agg(m.name, to_jsonb(m) ->> 'digest') from migrations m)`;

/**
 * Returns the migration which shows that neither this build nor a released one has made the
 * schema of a database: the first page that the database has in another text, or lacks.
 * Undefined if there is none.
 */
export async function findForeignPage(
  folder: MigrationFolder,
  recorded: RecordedMigrations | null,
): Promise<string | undefined> {
  if (recorded === null) return undefined;

  const pages = [...(await pageDigests(folder))];
  const [first] = pages.find(([name, digest], index) =>
    name in recorded ? recorded[name] !== digest : index === 0,
  ) ?? [undefined];
  return first;
}
