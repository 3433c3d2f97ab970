import type pg from 'pg';
import { OperatorError } from '../../operator-error.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';

/** One migration as the statements it consists of. */
export interface SchemaStep {
  name: string;
  up: string[];
  down: string[];
}

/**
 * The migrations of tenant databases, in their order. Their classes are asked once, and not again for each tenant.
 * @throws {OperatorError} when one cannot be run over a fleet
 */
export async function readSchemaSteps(): Promise<SchemaStep[]> {
  const migrations = await loadMigrations('tenant');
  return Promise.all(
    migrations.map(async ({ name, class: Migration }) => {
      const statements = async (direction: 'up' | 'down'): Promise<string[]> => {
        // Without a driver: a migration that queries while it is being read reaches no database, and fails.
        const migration = new Migration(undefined as never, undefined as never);
        await migration[direction]();
        return migration.getQueries().map(query => {
          if (typeof query !== 'string') throw new OperatorError(`${name}: a tenant migration consists of plain SQL`);
          return query;
        });
      };
      if (!new Migration(undefined as never, undefined as never).isTransactional()) {
        // Failed halfway, it could not be undone; and nobody waits for its locks, as the tenant is not served meanwhile.
        throw new OperatorError(
          `${name}: a tenant migration runs in a transaction (create index without concurrently)`,
        );
      }
      return { name, up: await statements('up'), down: await statements('down').catch(() => []) };
    }),
  );
}

/** What stands inside a tenant database about itself. Both are missing in an empty one. */
export interface SchemaState {
  guid: string | null;
  applied: string[];
}

export async function readSchemaState(client: pg.Client): Promise<SchemaState> {
  const query =
    'select (select guid from tenant_identity) as guid, array(select name::text from migrations order by id) as applied';
  try {
    const { rows } = await client.query<SchemaState>(query);
    return rows[0] ?? { guid: null, applied: [] };
  } catch (error) {
    if (sqlState(error) !== '42P01') throw error;
    return { guid: null, applied: [] };
  }
}

/** As MikroORM makes it, whose own command line reads it too. */
const trackingTable = `
  create table if not exists migrations (
    id serial primary key, name varchar(255) not null, executed_at timestamptz(6) not null default current_timestamp(6)
  )`;

/** An empty database has none yet. First, as whoever reads both tables opens it first. */
const lockIdentity = `
  do $$ begin
    if to_regclass('tenant_identity') is not null then lock table tenant_identity in access exclusive mode; end if;
  end $$`;

/**
 * Changes a tenant database in one transaction. From its begin to its end nobody can open a connection to serve the
 * tenant: such a connection reads first whose database it is and at which version, and waits.
 * @param check is the last thing before the commit; what it throws undoes everything
 */
export async function changeSchema(
  client: pg.Client,
  change: (applied: string[]) => Promise<void>,
  check?: () => Promise<void>,
): Promise<void> {
  try {
    await change(await beginChange(client));
    await check?.();
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}

/** In one round trip. @returns the migrations that the database has */
async function beginChange(client: pg.Client): Promise<string[]> {
  const results: unknown = await client.query(
    `begin; set local client_min_messages = warning; ${trackingTable};
     ${lockIdentity}; lock table migrations in access exclusive mode; select name from migrations order by id`,
  );
  const [last] = (results as pg.QueryResult<{ name: string }>[]).slice(-1);
  return (last?.rows ?? []).map(({ name }) => name);
}

/** Runs one step upwards and writes it down, in one round trip. */
export async function applyStep(client: pg.Client, { name, up }: SchemaStep): Promise<void> {
  await named(name, client.query([...up, `insert into migrations (name) values ('${name}')`].join(';\n')));
}

/** Runs one step downwards and strikes it out. */
export async function revertStep(client: pg.Client, { name, down }: SchemaStep): Promise<void> {
  await named(name, client.query([...down, `delete from migrations where name = '${name}'`].join(';\n')));
}

async function named(step: string, work: Promise<unknown>): Promise<void> {
  await work.catch((error: Error) => {
    error.message = `${step}: ${error.message}`;
    throw error;
  });
}
