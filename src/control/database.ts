import { Migrator } from '@mikro-orm/migrations';
import { defineConfig, MikroORM, type Options } from '@mikro-orm/postgresql';
import { PostgresDialect } from 'kysely';
import type pg from 'pg';
import { BoundConnection } from '../lib/postgres/bound-connection.ts';
import { mayBeCommitted } from '../lib/postgres/commit-outcome.ts';
import { PoolError } from '../lib/postgres/database-error.ts';
import { inRows, JsonRows, sentTypes } from '../lib/postgres/json-columns.ts';
import { migrationOptions } from '../lib/postgres/migration-steps.ts';
import { abortClient } from '../lib/postgres/scram-client.ts';
import type { RowValues, Statement } from '../lib/postgres/statement.ts';
import { outcomeUnknown } from '../lib/problems.ts';
import { answerMs, type Deadline } from '../lib/runtime/deadline.ts';
import { OwnDriver } from '../lib/seams/own-driver.ts';
import { createControlPool } from './control-pool.ts';
import { controlEntities } from './entities.ts';

/**
 * Names the actor of the changes of a transaction, for the audit log.
 * @param actor `RequestContext.actor`
 */
export async function setActor(query: QueryControl, actor: string): Promise<void> {
  await query('set_actor', `select set_config('app.actor', $1, true)`, [actor]);
}

/** The control database: it stores all tenants, keys, users and sessions. */
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

/**
 * MikroORM's driver. Its entity managers send values as parameters, never within the text of a
 * statement.
 */
class ControlDriver extends OwnDriver<ControlConnection> {
  constructor(config: ConstructorParameters<typeof OwnDriver>[0]) {
    super(config, new ControlConnection(config));
  }
}

/** MikroORM's connection, which uses a pool that exists already, and ends it. */
class ControlConnection extends BoundConnection {
  #pool: pg.Pool | undefined;

  override createKyselyDialect(options: object): PostgresDialect {
    const { pool } = options as { pool: pg.Pool };
    this.#pool = pool;

    return new PostgresDialect({ pool });
  }

  override async getNativeClient(): Promise<pg.Pool> {
    await this.ensureConnection();
    return this.requireNativeClient(this.#pool);
  }

  override async close(force?: boolean): Promise<void> {
    await super.close(force);
    // Kysely ends the pool only after a query of its own.
    if (this.#pool && !this.#pool.ending) await this.#pool.end();
  }
}

/**
 * Opens the control database for entity managers. Close it with `control.close()`, which ends
 * the pool.
 * @param pool of `createControlPool`, for the same URL
 */
export function openControlDatabase(
  url: string,
  pool: pg.Pool = createControlPool(url),
): ControlDatabase {
  // A function, because MikroORM copies the objects in its options.
  return new MikroORM({
    ...controlOptions(url),
    driver: ControlDriver,
    driverOptions: () => ({ pool }),
  });
}

/**
 * Returns the rows of a prepared statement, for queries that requests wait for. 64-bit integers
 * and timestamps are strings, as PostgreSQL writes them.
 * @param name name of the statement, which each connection prepares once. One name has one
 *   text: a second text fails
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

/**
 * Returns the rows of a statement of a table, with values of the types that the statement
 * declares.
 */
export async function queryStatement<Row extends object = RowValues>(
  control: ControlDatabase,
  statement: Statement<Row>,
): Promise<Row[]> {
  const pool = await control.em.getConnection().getNativeClient();
  const { json } = statement;
  if (!json) return (await pool.query<Row>(statement)).rows;

  const query = { ...statement, types: sentTypes, rowMode: 'array' as const };
  const { fields, rows } = await pool.query<(string | null)[]>(query);
  const jsonRows = new JsonRows(fields, json);
  return inRows<Row>(
    json,
    rows.map(row => ({ json: jsonRows.write(row) })),
  );
}

interface TransactOptions {
  /**
   * The deadline of the request. When it passes, the connection is destroyed, so that nothing
   * is committed afterwards.
   */
  deadline?: Deadline;
  /** False when the same request must not be sent again after it was done. Default: true. */
  isRepeatable?: boolean;
}

/** Runs a prepared statement in a transaction, as `queryControl` does. */
export type QueryControl = <Row extends object>(
  name: string,
  text: string,
  values: unknown[],
) => Promise<Row[]>;

/**
 * Runs prepared statements in a transaction, for transactions that requests wait for: those of
 * an entity manager take several times as long.
 * @param work must await nothing but its queries. If the connection dies, the query fails and
 *   this function releases the connection. While anything else is awaited,
 *   `removeDeadConnections` would release it first, and the second release throws
 * @throws {DeadlineError} when the deadline has passed
 * @throws {Problem} `outcomeUnknown` when the commit of a change that is not repeatable was
 *   sent and not confirmed
 */
export async function transactControl<Result>(
  control: ControlDatabase,
  work: (query: QueryControl) => Promise<Result>,
  { deadline, isRepeatable = true }: TransactOptions = {},
): Promise<Result> {
  const pool = await control.em.getConnection().getNativeClient();
  const client = await pool.connect();
  const forgetDeadline = deadline?.onPass(() => {
    abortClient(client, new PoolError('ETIMEDOUT', 'the request reached its deadline'));
  });

  let broken = false;
  let isCommitting = false;

  try {
    await client.query('begin');
    const result = await work(
      async (name, text, values) => (await client.query({ name, text, values })).rows,
    );

    deadline?.throwIfPassed();
    isCommitting = true;
    await client.query('commit');
    deadline?.extend(answerMs);
    return result;
  } catch (error) {
    // the first error is the one to report
    await client.query('rollback').catch(() => (broken = true));
    throw isCommitting && !isRepeatable && mayBeCommitted(error) ? outcomeUnknown(error) : error;
  } finally {
    forgetDeadline?.();
    client.release(broken);
  }
}
