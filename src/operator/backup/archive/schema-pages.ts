import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { LaterBuildError } from '../../../control/later-build.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import {
  folderUrl,
  type MigrationFolder,
  type RecordedMigrations,
} from '../../../lib/postgres/migration-names.ts';
import {
  type LoadedMigration,
  loadMigrations,
  migrationQueries,
} from '../../../lib/postgres/migration-steps.ts';
import { ArchiveFault } from './archive-fault.ts';

/** A migration as SQL. */
export interface SchemaPage {
  /** The name of the migration. */
  readonly name: string;
  readonly text: string;
  /** SHA-256 of the text, in hexadecimal. */
  readonly digest: string;
}

/**
 * Returns the migrations of this build as SQL, in their order: the page beside a migration, or
 * the statements that it adds.
 * @throws {OperatorError} when a migration is not plain SQL
 */
export async function readSchemaPages(folder: MigrationFolder): Promise<SchemaPage[]> {
  const migrations = await loadMigrations(folder);

  return Promise.all(
    migrations.map(async migration => {
      const { name, digest } = migration;
      const text = digest === null ? await statementsOf(migration) : await readPage(folder, name);
      return { name, text, digest: createHash('sha256').update(text).digest('hex') };
    }),
  );
}

async function readPage(folder: MigrationFolder, name: string): Promise<string> {
  const text = await readFile(new URL(`${name}.sql`, folderUrl(folder)), 'utf8');
  return text.replaceAll('\r\n', '\n');
}

async function statementsOf(migration: LoadedMigration): Promise<string> {
  const { name } = migration;
  const statements = (await migrationQueries(migration, 'up')).map(query => {
    if (typeof query !== 'string') {
      throw new OperatorError(`${name}: write a migration in plain SQL`);
    }
    return query.trim();
  });

  return `${statements.join(';\n')};\n`;
}

/**
 * Returns the pages of this build that have made the schema of a database.
 * @param recorded the migrations that the database records
 * @throws {OperatorError} when it has none, or one that this build does not know, or has in
 *   another text
 */
export function pagesOf(
  pages: readonly SchemaPage[],
  recorded: RecordedMigrations | null,
  database: string,
): SchemaPage[] {
  const names = Object.keys(recorded ?? {}).sort();
  if (names.length === 0) throw new OperatorError(`database ${database} has no schema version`);

  return names.map(name => {
    const page = pages.find(each => each.name === name);
    if (!page) {
      throw new LaterBuildError(`database ${database}`, name);
    }

    const digest = recorded?.[name] ?? null;
    if (digest !== null && digest !== page.digest) {
      throw new OperatorError(
        `database ${database} has another schema under the name ${name} than this build`,
      );
    }

    return page;
  });
}

/**
 * Checks that this build makes the schema that an archive has.
 * @throws {LaterBuildError} when it lacks a page of it
 * @throws {ArchiveFault} when it has another text of one
 */
export function requireKnownPages(
  pages: readonly SchemaPage[],
  archived: readonly Pick<SchemaPage, 'name' | 'digest'>[],
): void {
  for (const { name, digest } of archived) {
    const page = pages.find(each => each.name === name);
    if (!page) {
      throw new LaterBuildError('its schema', name);
    }
    if (page.digest !== digest) {
      throw new ArchiveFault(
        'other_schema',
        `an older build has made its schema ${name}, which is no released one`,
      );
    }
  }
}
