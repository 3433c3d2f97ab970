import { readdir } from 'node:fs/promises';

export type MigrationFolder = 'control' | 'tenant';

const migrationFile = /^\d{4}-[a-z0-9-]+\.ts$/;

/** Returns the URL of a folder of migrations. */
export function folderUrl(folder: MigrationFolder): URL {
  return new URL(`../../migrations/${folder}/`, import.meta.url);
}

/** Returns the names of all migrations of a folder in the order in which they run. Opens no migration file. */
export async function migrationNames(folder: MigrationFolder): Promise<string[]> {
  const files = await readdir(folderUrl(folder));
  return files
    .filter(file => migrationFile.test(file))
    .sort()
    .map(file => file.slice(0, -'.ts'.length));
}
