import type pg from 'pg';
import type { SchemaVersion } from '../../control/schema-version.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { type RecordedMigrations, recordedMigrations } from '../../lib/postgres/migration-names.ts';
import {
  createMigration,
  loadMigrations,
  migrationQueries,
} from '../../lib/postgres/migration-steps.ts';
import { quoteLiteral } from '../../lib/postgres/quote.ts';
import { endSessionsOf } from './tenant-sessions.ts';

/** One migration as the SQL statements of both directions. */
export interface SchemaStep {
  name: string;
  up: string[];
  down: string[];
  /** The reason why the step cannot be undone; undefined: it can. */
  refusal?: string;
  /** True if the build before the migration can serve the schema after it. */
  compatible: boolean;
  /** The digest of the page of SQL of the migration; null: it has no page. */
  digest: string | null;
}

/**
 * Reads the statements of all tenant migrations, in their order, once for all tenants of a run.
 * @throws {OperatorError} when a migration cannot run over a fleet: it is not plain SQL, or not
 *   transactional
 */
export async function readSchemaSteps(): Promise<SchemaStep[]> {
  const migrations = await loadMigrations('tenant');

  return Promise.all(
    migrations.map(async migration => {
      const { name, compatible, digest } = migration;

      const statements = async (direction: 'up' | 'down'): Promise<string[]> => {
        const queries = await migrationQueries(migration, direction);

        return queries.map(query => {
          if (typeof query !== 'string') {
            throw new OperatorError(`${name}: write a tenant migration in plain SQL`);
          }
          return query;
        });
      };

      if (!createMigration(migration).isTransactional()) {
        // A migration without a transaction that fails halfway cannot be undone. It would save
        // no waiting for locks either: the tenant is out of service while it is migrated.
        throw new OperatorError(
          `${name}: a tenant migration must run in a transaction: write "create index" without "concurrently"`,
        );
      }

      const step = { name, up: await statements('up'), compatible, digest };

      return statements('down').then(
        down => ({ ...step, down }),
        (error: Error) => ({ ...step, down: [], refusal: error.message }),
      );
    }),
  );
}

/**
 * Returns the oldest build that can serve the schema after all these migrations: see
 * `SchemaVersion`.
 */
export function compatibleFrom(
  steps: readonly Pick<SchemaStep, 'name' | 'compatible'>[],
): string | null {
  return steps.findLast(({ compatible }) => !compatible)?.name ?? null;
}

/**
 * Returns the version of a schema with these migrations. One that this build does not know
 * counts as not compatible.
 */
export function versionOf(applied: readonly string[], steps: readonly SchemaStep[]): SchemaVersion {
  const known = new Map(steps.map(step => [step.name, step]));
  return {
    schemaVersion: applied.at(-1) ?? null,
    compatibleFrom: compatibleFrom(
      applied.map(name => known.get(name) ?? { name, compatible: false }),
    ),
  };
}

/** The tenant and the migrations that a tenant database records. */
export interface SchemaState {
  /** The guid of the tenant; null in an empty database. */
  guid: string | null;
  /** The names of the migrations, in the order in which they ran. */
  applied: string[];
  /** The same migrations with the digests of their pages; null: there are none. */
  recorded: RecordedMigrations | null;
}

const stateQuery = `
  select (select guid from tenant_identity) as guid, array(select name::text from migrations order by id) as applied,
         ${recordedMigrations} as recorded`;

const emptyState: SchemaState = { guid: null, applied: [], recorded: null };

/** Reads the tenant and the migrations that a database records. */
export async function readSchemaState(client: pg.Client): Promise<SchemaState> {
  try {
    const { rows } = await client.query<SchemaState>(stateQuery);
    return rows[0] ?? emptyState;
  } catch (error) {
    if (sqlState(error) !== '42P01') throw error;
    return emptyState;
  }
}

interface SchemaChange {
  /** The login role of the tenant. */
  role: string;
  /** The state of the database that the statements of the change were chosen for. */
  state: SchemaState;
  change: () => Promise<unknown>;
  /** Runs before the commit; an error rolls everything back. */
  check?: () => Promise<void>;
  /** True if every build that serves the tenant can go on with the changed schema. */
  compatible?: boolean;
}

/**
 * Changes the schema of a tenant database in one transaction, which locks `tenant_identity` and
 * `migrations`. A new connection that is to serve the tenant first reads both (identity and
 * version), so it waits until the transaction has ended.
 *
 * Under these locks the sessions of the tenant's role end. So no connection that was verified
 * at the earlier version exists at the commit, whenever the request began that would use it.
 * After the commit they end once more: a session that waited for the lock does not see the new
 * version if its isolation level is repeatable read.
 *
 * A compatible change locks `migrations` only, so that no other run changes the schema, and
 * ends no session.
 * @param client in pipeline mode
 * @returns undefined after the commit; or, if the database has another state than `state`, that
 *   one: nothing was changed then
 */
export async function changeSchema(
  client: pg.Client,
  { role, state, change, check, compatible = false }: SchemaChange,
): Promise<SchemaState | undefined> {
  const end = async (): Promise<void> => {
    if (!compatible) await endSessionsOf(client, role);
  };
  try {
    const found = await beginChange(client, compatible);
    if (found.guid !== state.guid || found.applied.join() !== state.applied.join()) {
      await client.query('rollback');
      return found;
    }
    await end();
    await change();
    await check?.();
    // This ends the sessions that have begun since.
    await end();
    await Promise.all([client.query('commit'), end()]);
    return undefined;
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}

/**
 * Begins the transaction.
 * @returns the state of the database under the locks
 */
async function beginChange(client: pg.Client, compatible: boolean): Promise<SchemaState> {
  const statements = [
    // each statement sees what others have committed before it
    'begin isolation level read committed',
    'set local client_min_messages = warning',
    // First, in the order in which `stateQuery` and new connections open the two tables: the
    // reverse could deadlock.
    `lock table tenant_identity in access ${compatible ? 'share' : 'exclusive'} mode`,
    'lock table migrations in access exclusive mode',
  ];
  await client.query(statements.join(';\n'));
  return readSchemaState(client);
}

/** Runs a migration and records it. */
export async function applyStep(
  client: pg.Client,
  { name, up, compatible, digest }: SchemaStep,
): Promise<void> {
  const record = `
    insert into migrations (name, compatible, digest)
    values (${quoteLiteral(name)}, ${compatible}, ${digest === null ? 'null' : quoteLiteral(digest)})`;
  await runStatements(client, name, [...up, record]);
}

/** Undoes a migration and removes its record. */
export async function revertStep(client: pg.Client, { name, down }: SchemaStep): Promise<void> {
  await runStatements(client, name, [...down, `delete from migrations where name = '${name}'`]);
}

/**
 * Runs the statements of a migration, without a wait between them. An error gets the name of
 * the migration in front of its message, and the facts that `failureOf` reads: the statement,
 * and the process of the session.
 * @param client in pipeline mode, in a transaction: after an error the server runs none of the
 *   others
 */
async function runStatements(
  client: pg.Client,
  migration: string,
  statements: readonly string[],
): Promise<void> {
  const { processID = null } = client as { processID?: number | null };
  const run = (sql: string): Promise<unknown> =>
    client.query(sql).catch((error: Error & { position?: string }) => {
      const statement = statementAt(sql, Number(error.position ?? Number.NaN));
      throw Object.assign(error, {
        message: `${migration}: ${error.message}`,
        migration,
        statement,
        process: processID,
      });
    });
  const [first] = (await Promise.allSettled(statements.map(run))).filter(
    ({ status }) => status === 'rejected',
  );

  if (first?.status === 'rejected') throw first.reason;
}

/** The maximum characters of a statement in the report of a failure. */
const maxStatement = 2_000;

/**
 * Returns the statement of a text that a position is in, or the beginning of the text.
 * @param position from 1 on
 */
function statementAt(sql: string, position: number): string {
  const text = sql.trim();
  if (text.length <= maxStatement || Number.isNaN(position)) return text.slice(0, maxStatement);

  const before = sql.slice(0, position).lastIndexOf(';\n') + 1;
  const end = sql.indexOf(';\n', position);

  return sql
    .slice(before, end < 0 ? undefined : end)
    .trim()
    .slice(0, maxStatement);
}
