import { Migrator } from '@mikro-orm/migrations';
import { defineConfig, MikroORM, type Options } from '@mikro-orm/postgresql';
import type pg from 'pg';
import { connectionConfig, timeLimits } from '../postgres/connection.ts';
import { dropDeadConnections } from '../postgres/dead-connections.ts';
import { migrationNames, migrationOptions } from '../postgres/migration-steps.ts';
import { controlEntities } from './entities.ts';

/** The control database: knows all tenants, keys, users and sessions. */
export type ControlDatabase = MikroORM;

/** MikroORM's options for the control database. */
export function controlOptions(url: string): Options {
  return defineConfig({
    contextName: 'default',
    clientUrl: url,
    ensureDatabase: false,
    entities: controlEntities,
    extensions: [Migrator],
    migrations: migrationOptions('control'),
  });
}

/** Opens no connection yet: the pool connects on first use. Close it with `control.close()`. */
export function openControlDatabase(url: string, connections = 2): ControlDatabase {
  return new MikroORM({
    ...controlOptions(url),
    driverOptions: {
      ...connectionConfig(url, 'control', { datestyle: 'ISO' }), // moments as text are the same in every session
      max: connections,
      idleTimeoutMillis: timeLimits.control.idleMs,
      keepAlive: true,
      onPoolCreated: (pool: pg.Pool) => dropDeadConnections(pool, timeLimits.control.silenceMs),
    },
  });
}

/**
 * The rows of a prepared statement, for the look-ups that requests wait for. Values are as PostgreSQL writes them: numbers
 * of 64 bits and moments are text.
 * @param name of the statement; each connection prepares it once
 */
export async function queryControl<Row extends object>(
  control: ControlDatabase,
  name: string,
  text: string,
  values: unknown[],
): Promise<Row[]> {
  const pool = await control.em.getConnection().getNativeClient();
  const { rows } = await pool.query<Row>({ name, text, values });
  return rows;
}

type QueryControl = <Row extends object>(name: string, text: string, values: unknown[]) => Promise<Row[]>;

/**
 * The same in a transaction, for the few that requests wait for: those of an entity manager take several times as long.
 * @param work may wait for nothing but its queries: a connection that dies meanwhile leaves the pool by itself
 */
export async function transactControl<Result>(
  control: ControlDatabase,
  work: (query: QueryControl) => Promise<Result>,
): Promise<Result> {
  const pool = await control.em.getConnection().getNativeClient();
  const client = await pool.connect();
  let broken = false;
  try {
    await client.query('begin');
    const result = await work(async (name, text, values) => (await client.query({ name, text, values })).rows);
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => (broken = true)); // what matters is why it failed
    throw error;
  } finally {
    client.release(broken);
  }
}

/** The last migration that the control database has; undefined when it has none. */
export async function controlVersion(control: ControlDatabase): Promise<string | undefined> {
  const [table] = await control.em.execute<{ found: boolean }[]>(
    `select to_regclass('public.migrations') is not null as found`,
  );
  if (!table?.found) return undefined;
  const [row] = await control.em.execute<{ name: string | null }[]>('select max(name) as name from migrations');
  return row?.name ?? undefined;
}

/** The last migration of the control database that this build knows. */
export async function controlHead(): Promise<string> {
  return (await migrationNames('control')).at(-1) ?? '';
}
