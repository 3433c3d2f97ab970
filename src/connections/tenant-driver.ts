import { type EntityManager, type MikroORM, PostgreSqlDriver } from '@mikro-orm/postgresql';
import { connectionConfig, timeLimits } from '../postgres/connection.ts';
import type { RowValues, Statement } from '../postgres/statement.ts';
import type { Deadline } from '../runtime/deadline.ts';
import type { Trace } from '../tracing/trace.ts';
import type { ConnectionBudget } from './connection-budget.ts';
import type { ReadMemory } from './read-memory.ts';
import { resourceLockKey } from './resource-lock.ts';
import { SharedCommits } from './shared-commits.ts';
import type { TenantClient } from './tenant-client.ts';
import { TenantConnection } from './tenant-connection.ts';
import type { ExpectedTenant } from './tenant-identity.ts';
import { type Relocate, TenantPool } from './tenant-pool.ts';
import { type ReadResult, TenantReads } from './tenant-reads.ts';
import { TenantTransaction } from './tenant-transaction.ts';
import { traceConnect, traceQuery } from './trace-steps.ts';

interface TenantDriverOptions {
  url: string;
  expected: ExpectedTenant;
  budget: ConnectionBudget;
  /** Shared by the drivers of all tenants. */
  readMemory: ReadMemory;
  /** Maximum time to open a connection, in milliseconds. */
  connectTimeoutMs: number;
  /** The names of the connections end with it. */
  processId?: string | undefined;
  /** Finds the connections of the tenant when its database was replaced. */
  relocate?: Relocate;
  /** Called with the duration of each use of a connection, in milliseconds. */
  onUsed?: ((ms: number) => void) | undefined;
}

/** Makes the checks that must come first, and returns the statement that makes the change. */
export type Prepare = (transaction: TenantTransaction) => Promise<Statement>;

interface Change {
  /** The actor of the change, as JSON for the audit log. */
  actor: string;
  /** The changed resource, if its responses are cached. */
  resource: string | undefined;
  /** The statement that makes the change, or what comes before it. */
  change: Statement | Prepare;
  /** Notifies every process that the resource changes. Called before the first change of a burst. */
  announce: () => Promise<void>;
  /** Of the request that makes the change. */
  deadline?: Deadline | undefined;
}

/** Timestamps as text are the same in every session. */
const sessionSettings = { timezone: 'UTC', datestyle: 'ISO' };

/**
 * One tenant's MikroORM driver. All tenants share the metadata of one MikroORM; only the driver and its pool are the
 * tenant's own. It uses protected members of MikroORM, so MikroORM's version is pinned, and a test checks
 * `current_database()` for each kind of access.
 */
export class TenantDriver extends PostgreSqlDriver {
  declare protected readonly connection: TenantConnection;
  declare protected readonly platform: ReturnType<PostgreSqlDriver['getPlatform']>;
  readonly pool: TenantPool;
  /** The URL of the database, with the tenant's login. */
  readonly url: string;
  readonly #reads: TenantReads;
  readonly #sharedCommits = new SharedCommits({
    connect: () => this.pool.connect(),
    commit: (client, { actor, change }) =>
      new TenantTransaction(client, actor, () => this.entityManager()).commit(change),
    changeAlone: change => this.#changeAlone(change),
  });

  constructor(orm: MikroORM, options: TenantDriverOptions) {
    super(orm.config);
    const { url, expected, budget, readMemory, connectTimeoutMs, processId, relocate, onUsed } = options;
    this.url = url;
    this.#reads = new TenantReads({
      connect: () => this.pool.connect(),
      withClient: (query, deadline) => this.#withClient(query, deadline),
      memory: readMemory,
    });
    const { pathname } = new URL(url);
    this.connection = new TenantConnection(orm.config, { dbName: decodeURIComponent(pathname.slice(1)) });
    const settings = {
      ...this.connection.mapOptions({}), // MikroORM's type parsers
      ...connectionConfig(url, 'api', sessionSettings, processId),
      keepAlive: true,
      pipeline: true,
      expected,
      silenceMs: timeLimits.api.silenceMs,
      openMs: connectTimeoutMs,
    };
    this.pool = this.connection.pool = new TenantPool(budget, settings, relocate, onUsed);
    this.platform = orm.driver.getPlatform();
    this.setMetadata(orm.getMetadata());
  }

  /** As `TenantReads.read`. */
  read(select: Statement, deadline?: Deadline): Promise<RowValues[]> {
    return this.#reads.read(select, deadline);
  }

  /** As `TenantReads.readWithin`. */
  readWithin(select: Statement, ms: number, deadline?: Deadline): Promise<RowValues[] | undefined> {
    return this.#reads.readWithin(select, ms, deadline);
  }

  /** As `TenantReads.readCacheable`. */
  readCacheable(select: Statement, resource: string, deadline?: Deadline): Promise<ReadResult> {
    return this.#reads.readCacheable(select, resource, deadline);
  }

  /**
   * Makes one change in a transaction that carries the actor; changes of one statement share it with others. A request
   * that is traced has a transaction of its own. @returns the rows of the statement
   */
  change(change: Change): Promise<RowValues[]> {
    const { change: statement, ...rest } = change;
    if (typeof statement === 'function' || !statement.withActor || rest.deadline?.trace)
      return this.#changeAlone(change);
    return this.#sharedCommits.change({ ...rest, change: statement });
  }

  #changeAlone({ actor, resource, change, announce, deadline }: Change): Promise<RowValues[]> {
    const run = async (client: TenantClient, trace?: Trace) => {
      const transaction = new TenantTransaction(client, actor, () => this.entityManager());
      try {
        const statement = typeof change === 'function' ? await change(transaction) : change;
        // The announcement comes after the checks, so that a refused change invalidates no cached response.
        if (resource !== undefined) await client.locks.hold(resourceLockKey(resource), announce);
        const commit = () => transaction.commit(statement);
        return await (trace ? traceQuery(trace, statement, commit) : commit());
      } catch (error) {
        await transaction.rollback();
        throw error;
      }
    };
    const trace = deadline?.trace;
    return this.#withClient(
      client => (trace ? trace.step('transaction', {}, step => run(client, step)) : run(client)),
      deadline,
    );
  }

  /** Creates an entity manager on this database. It ignores the entity manager of MikroORM's async context. */
  entityManager(): EntityManager {
    return this.createEntityManager(false) as EntityManager;
  }

  async #withClient<T>(query: (client: TenantClient) => Promise<T>, deadline?: Deadline): Promise<T> {
    const trace = deadline?.trace;
    const connecting = trace ? traceConnect(trace, () => this.pool.connect(deadline)) : this.pool.connect(deadline);
    const client = await connecting;
    try {
      return await query(client);
    } finally {
      client.release();
    }
  }
}
