import { OperatorError } from '../lib/log/operator-error.ts';
import {
  findForeignPage,
  type RecordedMigrations,
  recordedMigrations,
} from '../lib/postgres/migration-names.ts';
import type { Queryable } from '../lib/postgres/shared-connection.ts';
import { hasMigrations } from './control-version.ts';

/**
 * Checks that the first schema of the control database is that of this build. A database
 * without a schema passes.
 * @param dataFolder of the embedded PostgreSQL; undefined if the database is configured
 * @throws {ForeignSchemaError} when it is another first schema
 */
export async function requireOwnControlSchema(
  control: Queryable,
  dataFolder: string | undefined,
): Promise<void> {
  if (!(await hasMigrations(control))) return;
  const { rows } = await control.query<{ recorded: RecordedMigrations | null }>(
    `select ${recordedMigrations} as recorded`,
  );
  const [row] = rows;
  const foreign = await findForeignPage('control', row?.recorded ?? null);
  if (foreign !== undefined) {
    throw new ForeignSchemaError('The control database', foreign, dataFolder);
  }
}

/** A database has a schema that neither this build nor a released one has made. */
export class ForeignSchemaError extends OperatorError {
  /**
   * @param subject the database, as the begin of a sentence
   * @param page what `findForeignPage` returned
   * @param dataFolder of the embedded PostgreSQL; undefined if the database is configured
   */
  constructor(subject: string, page: string, dataFolder: string | undefined) {
    super(
      dataFolder === undefined
        ? `${subject} is of no released build: its ${page} is not that of this build, and no ` +
            'migration leads from it here. Use the build that made it, or another database'
        : `${dataFolder} was made by another build, which was not released: its ${page} is not ` +
            'that of this build, and no migration leads from it here. Remove it with all data in ' +
            `it (rm -r ${shellWord(dataFolder)}), and start again`,
    );
  }
}

function shellWord(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
