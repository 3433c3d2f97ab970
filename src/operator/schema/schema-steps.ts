import type pg from 'pg';
import type { SchemaVersion } from '../../control/schema-version.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { copyTexts } from '../../postgres/copy-texts.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';
import { endSessions, signalSessions } from './tenant-sessions.ts';

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

/** Returns the version of a schema with these migrations. One that this build does not know counts as not compatible. */
export function versionOf(applied: readonly string[], steps: readonly SchemaStep[]): SchemaVersion {
  const known = new Map(steps.map(step => [step.name, step]));
  return {
    schemaVersion: applied.at(-1) ?? null,
    compatibleFrom: compatibleFrom(applied.map(name => known.get(name) ?? { name, compatible: false })),
  };
}

/** The tenant and the migrations that a tenant database records. */
export interface SchemaState {
  /** The guid of the tenant; null in an empty database. */
  guid: string | null;
  /** The names of the migrations, in the order in which they ran. */
  applied: string[];
}

const stateQuery = `
  select (select guid from tenant_identity) as guid, array(select name::text from migrations order by id) as applied`;

/** Reads the tenant and the migrations that a database records. */
export async function readSchemaState(client: pg.Client): Promise<SchemaState> {
  try {
    const { rows } = await client.query<SchemaState>(stateQuery);
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

/** An empty database has no `tenant_identity`. */
const lockIdentityIfAny = `
  do $$ begin
    if to_regclass('tenant_identity') is not null then lock table tenant_identity in access exclusive mode; end if;
  end $$`;
/** Copies are not planned, which would cost a new session more than to run a query of these tables. */
const [copyIdentity, copyMigrations] = [
  'copy tenant_identity (guid) to stdout',
  'copy migrations (id, name) to stdout',
];

interface SchemaChange {
  /** The login role of the tenant. */
  role: string;
  /** The state of the database that the statements of the change were chosen for. */
  state: SchemaState;
  /** Sends the statements. */
  change: () => Promise<unknown>;
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
 *
 * All statements but the commit are sent in one round trip: after an error, PostgreSQL refuses those that follow.
 * @param client in pipeline mode
 * @returns undefined after the commit; or, if the database has another state than `state`, that one: nothing was
 *   changed then
 */
export async function changeSchema(
  client: pg.Client,
  { role, state, change, check, compatible = false }: SchemaChange,
): Promise<SchemaState | undefined> {
  try {
    const begun = beginChange(client, state, compatible);
    const ended = compatible ? 0 : signalSessions(client, role);
    const results = await Promise.allSettled([begun, ended, change(), check?.()]);
    const found = await begun;
    if (found.guid !== state.guid || found.applied.join() !== state.applied.join()) {
      await client.query('rollback');
      return found;
    }
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    if ((await ended) > 0) await endSessions(client, role);
    const [, remaining] = await Promise.all([client.query('commit'), compatible ? 0 : signalSessions(client, role)]);
    if (remaining > 0) await endSessions(client, role);
    return undefined;
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}

/** Begins the transaction in one round trip. @returns the state of the database under the locks */
async function beginChange(
  client: pg.Client,
  { guid, applied }: SchemaState,
  compatible: boolean,
): Promise<SchemaState> {
  const lockIdentity = `lock table tenant_identity in access ${compatible ? 'share' : 'exclusive'} mode`;
  const begin = [
    'begin isolation level read committed', // each statement sees what others have committed before it
    'set local client_min_messages = warning',
    ...(applied.length === 0 ? [trackingTable] : []),
    // First, in the order in which `stateQuery` and new connections open the two tables: the reverse could deadlock.
    ...(guid === null ? [lockIdentityIfAny] : [lockIdentity]),
    'lock table migrations in access exclusive mode',
  ];
  const copies = await copyTexts(client, [...begin, ...(guid === null ? [] : [copyIdentity]), copyMigrations]);
  const rows = (copies.at(-1) ?? []).map(line => line.split('\t'));
  return {
    guid: guid === null ? null : (copies.at(-2)?.[0] ?? null),
    applied: rows.sort(([a], [b]) => Number(a) - Number(b)).map(([, name]) => name ?? ''),
  };
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
