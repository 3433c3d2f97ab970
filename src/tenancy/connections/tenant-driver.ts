import type { EntityManager, MikroORM } from '@mikro-orm/postgresql';
import { PostgresDialect } from 'kysely';
import { parsePostgresUrl } from '../../lib/config/postgres-url.ts';
import { BoundConnection } from '../../lib/postgres/bound-connection.ts';
import { connectionConfig, timeLimits } from '../../lib/postgres/connection.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { OwnDriver } from '../../lib/seams/own-driver.ts';
import type { Trace } from '../../lib/tracing/trace.ts';
import type { ConnectionBudget } from './connection-budget.ts';
import type { Turns } from './large-reads.ts';
import { SharedCommits, type SingleChange } from './shared-commits.ts';
import type { TenantClient } from './tenant-client.ts';
import type { ExpectedTenant } from './tenant-identity.ts';
import { type Relocate, TenantPool } from './tenant-pool.ts';
import { TenantReads } from './tenant-reads.ts';
import { TenantTransaction } from './tenant-transaction.ts';
import { traceConnect, traceQuery } from './trace-steps.ts';

/**
 * MikroORM's connection of a tenant's driver; its pool acquires connections from the budget.
 * `close` ends the pool permanently, whereas MikroORM's own connection would open a new pool
 * for the next query. A transaction that is under way finishes on the connection that it has.
 */
class TenantConnection extends BoundConnection {
  pool!: TenantPool;

  override createKyselyDialect() {
    return new PostgresDialect({ pool: this.pool });
  }

  override async close(): Promise<void> {
    await this.pool.end();
  }
}

interface TenantDriverOptions {
  url: string;
  expected: ExpectedTenant;
  budget: ConnectionBudget;
  /** The turns of large reads, shared by the drivers of all tenants. */
  largeReads: Turns;
  /** Maximum time to open a connection, in milliseconds. */
  connectTimeoutMs: number;
  /** The id of the process, with which the names of the connections end. */
  processId?: string | undefined;
  /** Finds the connections of the tenant when its database was replaced. */
  relocate?: Relocate;
  /** Called with the duration of each use of a connection, in milliseconds. */
  onUsed?: ((ms: number) => void) | undefined;
  /** Called when a change has ended: it was committed or refused, or its outcome is unknown. */
  onCommit: () => void;
}

/** Makes the checks that must come first, and returns the statement that makes the change. */
export type Prepare<Row extends object = RowValues> = (
  transaction: TenantTransaction,
) => Promise<Statement<Row>>;

interface Change extends Omit<SingleChange, 'change'> {
  /** The statement that makes the change, or the work that leads to it. */
  change: Statement | Prepare;
}

/**
 * One tenant's MikroORM driver. All tenants share the metadata of one MikroORM; only the driver
 * and its pool are the tenant's own. A test checks `current_database()` for each kind of access.
 */
export class TenantDriver extends OwnDriver<TenantConnection> {
  readonly pool: TenantPool;
  /** The URL of the database, with the tenant's login. */
  readonly url: string;
  readonly reads: TenantReads;
  readonly #onCommit: () => void;
  readonly #sharedCommits = new SharedCommits({
    connect: () => this.pool.connect(),
    changeAlone: change => this.#changeAlone(change),
  });

  constructor(orm: MikroORM, options: TenantDriverOptions) {
    const {
      url,
      expected,
      budget,
      largeReads,
      connectTimeoutMs,
      processId,
      relocate,
      onUsed,
      onCommit,
    } = options;

    const { database: dbName } = parsePostgresUrl(url);
    super(orm.config, new TenantConnection(orm.config, { dbName }), orm);
    this.url = url;
    this.#onCommit = onCommit;
    this.reads = new TenantReads({
      connect: () => this.pool.connect(),
      withClient: (query, deadline) => this.#withClient(query, deadline),
      turns: largeReads,
    });

    const settings = {
      ...this.connection.mapOptions({}), // MikroORM's type parsers
      ...connectionConfig(url, 'api', {}, processId),
      keepAlive: true,
      pipeline: true,
      expected,
      silenceMs: timeLimits.api.silenceMs,
      openMs: connectTimeoutMs,
    };

    this.pool = this.connection.pool = new TenantPool(budget, settings, relocate, onUsed);
  }

  /**
   * Makes one change in a transaction that carries the actor. A change of a single statement
   * shares the transaction with others, unless its request is traced.
   * @returns the rows of the statement
   */
  async change(change: Change): Promise<RowValues[]> {
    const { change: statement, ...rest } = change;
    const isAlone = typeof statement === 'function' || !statement.withActor || rest.deadline?.trace;
    try {
      return await (isAlone
        ? this.#changeAlone(change)
        : this.#sharedCommits.change({ ...rest, change: statement }));
    } finally {
      if (!rest.isUnfed) this.#onCommit();
    }
  }

  #changeAlone({ actor, change, beforeCommit, deadline, isUnfed }: Change): Promise<RowValues[]> {
    const run = async (client: TenantClient, trace?: Trace) => {
      const transaction = new TenantTransaction(client, actor, () => this.entityManager());
      if (!isUnfed) client.pool.changedAt = performance.now();
      try {
        const statement = typeof change === 'function' ? await change(transaction) : change;
        beforeCommit?.();
        return await traceQuery(trace, statement, () => transaction.commit(statement));
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

  /**
   * Creates an entity manager on this database. It ignores the entity manager of MikroORM's
   * async context.
   */
  entityManager(): EntityManager {
    return this.createEntityManager(false);
  }

  async #withClient<T>(
    query: (client: TenantClient) => Promise<T>,
    deadline?: Deadline,
  ): Promise<T> {
    const client = await traceConnect(deadline?.trace, () => this.pool.connect(deadline));
    try {
      return await query(client);
    } finally {
      client.release();
    }
  }
}
