import { readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { type Migration, Migrator } from '@mikro-orm/migrations';
import { MikroORM, type Options } from '@mikro-orm/postgresql';
import { connectionConfig } from './connection.ts';

export type MigrationFolder = 'control' | 'tenant';
type MigrationClass = new (...args: ConstructorParameters<typeof Migration>) => Migration;

const migrationFile = /^\d{4}-[a-z0-9-]+\.ts$/;
const folderUrl = (folder: MigrationFolder): URL => new URL(`../../migrations/${folder}/`, import.meta.url);

/**
 * Where MikroORM finds the migrations of a folder. Hand-written SQL with triggers and grants is the truth; a snapshot of
 * the entities would only repeat a part of it.
 */
export function migrationOptions(folder: MigrationFolder): NonNullable<Options['migrations']> {
  return { path: fileURLToPath(folderUrl(folder)), tableName: trackingTable, glob: '[0-9]*.ts', snapshot: false };
}

const trackingTable = 'migrations';

/** The names of all migrations of a folder in the order they run; reads no file. */
export async function migrationNames(folder: MigrationFolder): Promise<string[]> {
  const files = await readdir(folderUrl(folder));
  return files
    .filter(file => migrationFile.test(file))
    .sort()
    .map(file => file.slice(0, -'.ts'.length));
}

/** Loads every migration of a folder once, so that migrating many databases reads no files. */
export async function loadMigrations(folder: MigrationFolder): Promise<{ name: string; class: MigrationClass }[]> {
  const names = await migrationNames(folder);
  return Promise.all(
    names.map(async name => {
      const module = (await import(new URL(`${name}.ts`, folderUrl(folder)).href)) as Record<string, MigrationClass>;
      const [migration] = Object.values(module);
      if (!migration) throw new Error(`migrations/${folder}/${name}.ts exports no migration`);
      return { name, class: migration };
    }),
  );
}

/**
 * Brings one database to the end of `migrationsList`, all pending migrations in one transaction. The caller holds the
 * lock that keeps others from migrating the same database, and knows that the database exists.
 * @param settings server settings of the session, readable in a migration with `current_setting`
 * @returns the names of the migrations that ran
 */
export async function runMigrations(
  url: string,
  migrationsList: Awaited<ReturnType<typeof loadMigrations>>,
  settings: Record<string, string> = {},
): Promise<string[]> {
  const orm = new MikroORM({
    clientUrl: url,
    entities: [],
    discovery: { warnWhenNoEntities: false },
    ensureDatabase: false,
    extensions: [Migrator],
    driverOptions: {
      ...connectionConfig(url, 'migrations', settings),
      max: 1,
    },
    migrations: { migrationsList, tableName: trackingTable, snapshot: false, silent: true },
  });
  try {
    return (await orm.migrator.up()).map(({ name }) => name);
  } finally {
    await orm.close(true);
  }
}
