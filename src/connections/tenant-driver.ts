import { createHash } from 'node:crypto';
import { type EntityManager, type MikroORM, PostgreSqlConnection, PostgreSqlDriver } from '@mikro-orm/postgresql';
import { PostgresDialect } from 'kysely';
import { connectionConfig, timeLimits } from '../postgres/connection.ts';
import { isConnectionLost } from '../postgres/database-error.ts';
import { sourceExpression } from '../postgres/server-address.ts';
import type { RowValues, Statement } from '../postgres/table-statements.ts';
import type { ConnectionBudget } from './connection-budget.ts';
import type { TenantClient } from './tenant-client.ts';
import { TenantPool } from './tenant-pool.ts';
import { TenantTransaction } from './tenant-transaction.ts';

/** The rows of a read, whether they may be cached, and the database that they came from. */
export interface ReadResult {
  readonly rows: RowValues[];
  /** True when no write of the resource was under way when the read began. */
  readonly cacheable: boolean;
  readonly source: string;
}

interface TenantDriverOptions {
  url: string;
  /** Which tenant a connection must find inside the database, and at which version. */
  expected: { guid: string; schemaVersion: string };
  budget: ConnectionBudget;
  connectTimeoutMs: number;
}

interface Change {
  actor: string;
  /** What is changed, if its answers are kept. */
  resource: string | undefined;
  /** Looks at what has to be looked at first, and tells the statement that makes the change. */
  prepare: (transaction: TenantTransaction) => Promise<Statement>;
  /** Tells every process that the resource changes, before the first change of a burst is made. */
  announce: () => Promise<void>;
}

// Whoever changes a resource holds its lock, shared, until the change is committed.
const isUnchanged = {
  name: 'is_unchanged',
  text: `select pg_try_advisory_xact_lock($1) as free, ${sourceExpression('current_database()')} as source`,
};

/**
 * Takes its connections from the budget. Closing ends the pool and no more: it stays closed, where MikroORM's own would
 * open anew, and a transaction that runs comes to its end on the connection it has.
 */
class TenantConnection extends PostgreSqlConnection {
  pool!: TenantPool;

  override createKyselyDialect() {
    return new PostgresDialect({ pool: this.pool as never });
  }

  override async close(): Promise<void> {
    await this.pool.end();
  }
}

/**
 * One tenant's way to its own database. All tenants share the metadata of one MikroORM; what is the tenant's own is
 * this driver and its pool. It leans on protected members of MikroORM, so the version is pinned and a test asks the
 * database for its name.
 */
export class TenantDriver extends PostgreSqlDriver {
  declare protected readonly connection: TenantConnection;
  declare protected readonly platform: ReturnType<PostgreSqlDriver['getPlatform']>;
  readonly pool: TenantPool;

  constructor(orm: MikroORM, { url, expected, budget, connectTimeoutMs }: TenantDriverOptions) {
    super(orm.config);
    const { pathname } = new URL(url);
    this.connection = new TenantConnection(orm.config, { dbName: decodeURIComponent(pathname.slice(1)) });
    this.pool = this.connection.pool = new TenantPool(budget, {
      ...this.connection.mapOptions({}), // how values of the types are read
      ...connectionConfig(url, 'api', { timezone: 'UTC', datestyle: 'ISO' }), // moments as text are the same in every session
      keepAlive: true,
      pipeline: true,
      expected,
      silenceMs: timeLimits.api.silenceMs,
      openMs: connectTimeoutMs,
    });
    this.platform = orm.driver.getPlatform();
    this.setMetadata(orm.getMetadata());
  }

  /** The rows of a reading statement. A connection that was cut meanwhile is replaced, once. */
  async read(select: Statement): Promise<RowValues[]> {
    const { rows } = await this.#onceMore(client => client.query<RowValues>(select));
    return rows;
  }

  /** The rows of a statement, where they come from, and whether no change of the resource was under way when it was asked. */
  async readCacheable(select: Statement, resource: string): Promise<ReadResult> {
    const key = lockOf(resource);
    return this.#onceMore(async client => {
      // One after the other, in one round trip: first the lock, then the look at the rows.
      const [lock, { rows }] = await client.sendTogether(() => [
        client.query<{ free: boolean; source: string }>({ ...isUnchanged, values: [key] }),
        client.query<RowValues>(select),
      ]);
      const { free = false, source = '' } = lock.rows[0] ?? {};
      return { rows, cacheable: free && !client.locks.has(key), source };
    });
  }

  /** Makes one change, in a transaction that carries who makes it. */
  change({ actor, resource, prepare, announce }: Change): Promise<RowValues[]> {
    return this.#with(async client => {
      if (resource !== undefined) await client.locks.hold(lockOf(resource), announce);
      const transaction = new TenantTransaction(client, actor, () => this.entityManager());
      try {
        return await transaction.commit(await prepare(transaction));
      } catch (error) {
        await transaction.rollback(); // what matters is why it failed
        throw error;
      }
    });
  }

  async #onceMore<T>(query: (client: TenantClient) => Promise<T>): Promise<T> {
    try {
      return await this.#with(query);
    } catch (error) {
      if (!isConnectionLost(error)) throw error;
      return this.#with(query);
    }
  }

  async #with<T>(query: (client: TenantClient) => Promise<T>): Promise<T> {
    const client = await this.pool.connect();
    try {
      return await query(client);
    } finally {
      client.release();
    }
  }

  /** A new unit of work on this database; it never looks for another one in an async context. */
  entityManager(): EntityManager {
    return this.createEntityManager(false) as EntityManager;
  }
}

const locks = new Map<string, string>();

/** The number of a resource's lock, inside the database of one tenant: 64 bits, the same in every process. */
function lockOf(resource: string): string {
  let lock = locks.get(resource);
  if (lock === undefined) {
    lock = createHash('sha256').update(`resource ${resource}`).digest().readBigInt64BE().toString();
    locks.set(resource, lock);
  }
  return lock;
}
