import type pg from 'pg';
import { OperatorError } from '../../operator-error.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';
import { endSessions } from './tenant-sessions.ts';

/** One migration as the SQL statements of both directions. */
export interface SchemaStep {
  name: string;
  up: string[];
  down: string[];
  /** True if the build before it can serve the schema after it. */
  compatible: boolean;
}

/**
 * Reads the statements of all tenant migrations, in their order, once for all tenants of a run.
 * @throws {OperatorError} when a migration cannot run over a fleet: it is not plain SQL, or not transactional
 */
export async function readSchemaSteps(): Promise<SchemaStep[]> {
  const migrations = await loadMigrations('tenant');
  return Promise.all(
    migrations.map(async ({ name, class: Migration, compatible }) => {
      const statements = async (direction: 'up' | 'down'): Promise<string[]> => {
        // The migration gets no driver here. So a migration that queries a database fails, instead of only adding SQL.
        const migration = new Migration(undefined as never, undefined as never);
        await migration[direction]();
        return migration.getQueries().map(query => {
          if (typeof query !== 'string') throw new OperatorError(`${name}: write a tenant migration in plain SQL`);
          return query;
        });
      };
      if (!new Migration(undefined as never, undefined as never).isTransactional()) {
        // A migration without a transaction that fails halfway cannot be undone. It would save no waiting for locks
        // either: the tenant is out of service while it is migrated.
        throw new OperatorError(
          `${name}: a tenant migration must run in a transaction: write "create index" without "concurrently"`,
        );
      }
      return { name, up: await statements('up'), down: await statements('down').catch(() => []), compatible };
    }),
  );
}

/** Returns the oldest build that can serve the schema after all these migrations: see `SchemaVersion`. */
export function compatibleFrom(steps: readonly Pick<SchemaStep, 'name' | 'compatible'>[]): string | null {
  return steps.findLast(({ compatible }) => !compatible)?.name ?? null;
}

/** The tenant and the migrations that a tenant database records. */
export interface SchemaState {
  /** The guid of the tenant; null in an empty database. */
  guid: string | null;
  /** The names of the migrations, in the order in which they ran. */
  applied: string[];
}

/** Reads the tenant and the migrations that a database records. */
export async function readSchemaState(client: pg.Client): Promise<SchemaState> {
  const query = `
    select (select guid from tenant_identity) as guid, array(select name::text from migrations order by id) as applied`;
  try {
    const { rows } = await client.query<SchemaState>(query);
    return rows[0] ?? { guid: null, applied: [] };
  } catch (error) {
    if (sqlState(error) !== '42P01') throw error;
    return { guid: null, applied: [] };
  }
}

/** The same table that MikroORM creates, because MikroORM's command line reads it as well. */
const trackingTable = `
  create table if not exists migrations (
    id serial primary key, name varchar(255) not null, executed_at timestamptz(6) not null default current_timestamp(6)
  )`;

/**
 * Locks `tenant_identity`, which an empty database does not have. It is locked before `migrations`, in the order in
 * which `readSchemaState` and new connections open the two tables; the reverse order could deadlock.
 */
const lockIdentity = `
  do $$ begin
    if to_regclass('tenant_identity') is not null then lock table tenant_identity in access exclusive mode; end if;
  end $$`;

interface SchemaChange {
  /** The login role of the tenant. */
  role: string;
  /** Receives the names of the migrations that the database has. */
  change: (applied: string[]) => Promise<void>;
  /** Runs before the commit; an error rolls everything back. */
  check?: () => Promise<void>;
  /** True if every build that serves the tenant can go on with the changed schema. */
  compatible?: boolean;
}

/**
 * Changes the schema of a tenant database in one transaction, which locks `tenant_identity` and `migrations`. A new
 * connection that is to serve the tenant first reads both (identity and version), so it waits until the transaction
 * has ended.
 *
 * Under these locks the sessions of the tenant's role end. So no connection that was verified at the earlier version
 * exists at the commit, whenever the request began that would use it. After the commit they end once more: a session
 * that waited for the lock does not see the new version if its isolation level is repeatable read.
 *
 * A compatible change locks `migrations` only, so that no other run changes the schema, and ends no session.
 */
export async function changeSchema(
  client: pg.Client,
  { role, change, check, compatible = false }: SchemaChange,
): Promise<void> {
  try {
    const applied = await beginChange(client, compatible ? '' : lockIdentity);
    if (!compatible) await endSessions(client, role);
    await change(applied);
    await check?.();
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
  if (!compatible) await endSessions(client, role);
}

/** Begins the transaction in one round trip. @returns the names of the migrations that the database has */
async function beginChange(client: pg.Client, lock: string): Promise<string[]> {
  const results: unknown = await client.query(
    `begin; set local client_min_messages = warning; ${trackingTable};
     ${lock}; lock table migrations in access exclusive mode; select name from migrations order by id`,
  );
  const [last] = (results as pg.QueryResult<{ name: string }>[]).slice(-1);
  return (last?.rows ?? []).map(({ name }) => name);
}

/** Runs a migration and records it, in one round trip. */
export async function applyStep(client: pg.Client, { name, up, compatible }: SchemaStep): Promise<void> {
  // The column came with a later migration than the first ones, none of which is compatible.
  const record = compatible
    ? `insert into migrations (name, compatible) values ('${name}', true)`
    : `insert into migrations (name) values ('${name}')`;
  await withStepName(name, client.query([...up, record].join(';\n')));
}

/** Undoes a migration and removes its record, in one round trip. */
export async function revertStep(client: pg.Client, { name, down }: SchemaStep): Promise<void> {
  await withStepName(name, client.query([...down, `delete from migrations where name = '${name}'`].join(';\n')));
}

/** Puts the name of the migration in front of the message of an error. */
async function withStepName(step: string, work: Promise<unknown>): Promise<void> {
  await work.catch((error: Error) => {
    error.message = `${step}: ${error.message}`;
    throw error;
  });
}
