import { fileURLToPath } from 'node:url';
import { type Migration, Migrator } from '@mikro-orm/migrations';
import { MikroORM, type Options } from '@mikro-orm/postgresql';
import { connectionConfig } from './connection.ts';
import { folderUrl, type MigrationFolder, migrationNames, pageDigests } from './migration-names.ts';

interface MigrationClass {
  new (...args: ConstructorParameters<typeof Migration>): Migration;
  /** True if the build before the migration can go on with the schema after it. */
  readonly compatible?: boolean;
}

export interface LoadedMigration {
  name: string;
  class: MigrationClass;
  compatible: boolean;
  /** The digest of its page of SQL; null: a migration without a page. */
  digest: string | null;
}

/**
 * Returns MikroORM's options for the migrations of a folder. There is no snapshot of the
 * entities: the hand-written SQL, with its triggers and grants, is the source of truth, and a
 * snapshot would repeat only a part of it.
 */
export function migrationOptions(folder: MigrationFolder): NonNullable<Options['migrations']> {
  return {
    path: fileURLToPath(folderUrl(folder)),
    tableName: trackingTable,
    glob: '[0-9]*.ts',
    snapshot: false,
  };
}

const trackingTable = 'migrations';

/** Loads every migration of a folder, so that migrating many databases reads the files once. */
export async function loadMigrations(folder: MigrationFolder): Promise<LoadedMigration[]> {
  const [names, digests] = await Promise.all([migrationNames(folder), pageDigests(folder)]);
  return Promise.all(
    names.map(async name => {
      const module: Record<string, MigrationClass> = await import(
        new URL(`${name}.ts`, folderUrl(folder)).href
      );
      const [migration] = Object.values(module);
      if (!migration) throw new Error(`migrations/${folder}/${name}.ts exports no migration`);

      return {
        name,
        class: migration,
        compatible: migration.compatible === true,
        digest: digests.get(name) ?? null,
      };
    }),
  );
}

/**
 * Makes a migration without a driver. So one that queries a database fails, instead of only
 * adding SQL.
 */
export function createMigration({ class: Migration }: Pick<LoadedMigration, 'class'>): Migration {
  return new Migration(undefined as never, undefined as never);
}

/**
 * Returns what one direction of a migration runs (`createMigration`).
 * @throws {Error} when its `down` refuses
 */
export async function migrationQueries(
  loaded: Pick<LoadedMigration, 'class'>,
  direction: 'up' | 'down',
): Promise<ReturnType<Migration['getQueries']>> {
  const migration = createMigration(loaded);
  await migration[direction]();

  return migration.getQueries();
}

/**
 * Runs all pending migrations of `migrationsList` on one database, in one transaction. The
 * database exists, and the caller holds the advisory lock under which no other process migrates
 * it.
 * @param settings server settings of the session; a migration reads them with `current_setting`
 * @returns the names of the migrations that ran
 */
export async function runMigrations(
  url: string,
  migrationsList: LoadedMigration[],
  settings: Record<string, string> = {},
): Promise<string[]> {
  const options = connectionConfig(url, 'migrations', settings);
  const orm = new MikroORM({
    clientUrl: url,
    dbName: options.server.database.replaceAll("'", "''"), // MikroORM writes it between apostrophes
    entities: [],
    discovery: { warnWhenNoEntities: false },
    ensureDatabase: false,
    extensions: [Migrator],
    driverOptions: { ...options, max: 1 },
    migrations: { migrationsList, tableName: trackingTable, snapshot: false, silent: true },
  });

  try {
    // creates the table outside of the transaction, which has the one connection
    await orm.migrator.getExecuted();
    const connection = orm.em.getConnection();

    return await connection.transactional(async transaction => {
      const applied = (await orm.migrator.up({ transaction })).map(({ name }) => name);
      for (const { name, compatible, digest } of migrationsList.filter(each =>
        applied.includes(each.name),
      )) {
        const record = 'update migrations set compatible = ?, digest = ? where name = ?';
        await connection.execute(record, [compatible, digest, name], 'run', transaction);
      }

      return applied;
    });
  } finally {
    await orm.close(true);
  }
}
