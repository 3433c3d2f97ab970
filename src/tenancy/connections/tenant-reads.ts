import { isConnectionLost, sqlState } from '../../lib/postgres/database-error.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { LargeReads, type Turns } from './large-reads.ts';
import { SharedReads } from './shared-reads.ts';
import type { TenantClient } from './tenant-client.ts';
import { traceQuery } from './trace-steps.ts';

/** The rows of a read, and whether they may be cached. */
export interface CacheableRows<Row extends object = RowValues> {
  readonly rows: Row[];
  /** False on a standby, which may lack changes that have been announced. */
  readonly isCacheable: boolean;
}

const queryCanceled = '57014';

interface TenantReadsOptions {
  connect: () => Promise<TenantClient>;
  /** Runs a query on a connection of its own. */
  withClient: <T>(query: (client: TenantClient) => Promise<T>, deadline?: Deadline) => Promise<T>;
  /** The turns of large reads, shared by all tenants. */
  turns: Turns;
}

/**
 * The reads of one tenant. If the connection of a read is lost meanwhile, it reads once more on
 * another one.
 */
export class TenantReads {
  readonly #withClient: TenantReadsOptions['withClient'];
  readonly #large: LargeReads;
  readonly #shared: SharedReads;

  constructor({ connect, withClient, turns }: TenantReadsOptions) {
    this.#withClient = withClient;
    this.#large = new LargeReads(turns);
    this.#shared = new SharedReads({
      connect,
      readOn: (client, { select }) => client.rows(select),
      readAlone: ({ select, deadline }) => this.#readAlone(select, deadline),
    });
  }

  /**
   * Returns the rows. Reads of a short statement share a connection with others. A request that
   * is traced reads alone.
   */
  read<Row extends object = RowValues>(
    select: Statement<Row>,
    deadline?: Deadline,
  ): Promise<Row[]> {
    const isAlone = !select.isShort || deadline?.trace;
    return isAlone ? this.#readAlone(select, deadline) : this.#shared.read({ select, deadline });
  }

  /**
   * Returns the rows of a statement that may read many records; undefined when PostgreSQL has
   * ended it after `ms`.
   */
  async readWithin<Row extends object = RowValues>(
    select: Statement<Row>,
    ms: number,
    deadline?: Deadline,
  ): Promise<Row[] | undefined> {
    try {
      return await this.#run(select, client => rowsWithin(client, select, ms), deadline);
    } catch (error) {
      if (sqlState(error) === queryCanceled) return undefined;
      throw error;
    }
  }

  /** Returns the rows of a reading statement, and whether they may be cached. */
  readCacheable<Row extends object = RowValues>(
    select: Statement<Row>,
    deadline?: Deadline,
  ): Promise<CacheableRows<Row>> {
    return this.#run(
      select,
      async client => ({ rows: await client.rows(select), isCacheable: !client.isStandby }),
      deadline,
    );
  }

  #readAlone<Row extends object = RowValues>(
    select: Statement<Row>,
    deadline?: Deadline,
  ): Promise<Row[]> {
    return this.#run(select, client => client.rows(select), deadline);
  }

  /** Runs a query on a connection of its own; a heavy statement waits for its turn. */
  #run<T>(
    select: Statement<object>,
    query: (client: TenantClient) => Promise<T>,
    deadline?: Deadline,
  ): Promise<T> {
    const run = (client: TenantClient) => traceQuery(deadline?.trace, select, () => query(client));
    if (!select.isHeavy) return this.#retryOnce(run, deadline);
    return this.#large.run(
      receive => this.#retryOnce(client => receive(client, () => run(client)), deadline),
      deadline,
    );
  }

  async #retryOnce<T>(
    query: (client: TenantClient) => Promise<T>,
    deadline?: Deadline,
  ): Promise<T> {
    try {
      return await this.#withClient(query, deadline);
    } catch (error) {
      if (!isConnectionLost(error)) throw error;
      return this.#withClient(query, deadline);
    }
  }
}

/** Returns the rows of a statement, which PostgreSQL ends after `ms` with SQLSTATE 57014. */
async function rowsWithin<Row extends object = RowValues>(
  client: TenantClient,
  select: Statement<Row>,
  ms: number,
): Promise<Row[]> {
  const [, , rows] = await client.sendTogether(() => [
    client.query('begin read only'),
    client.query(`set local statement_timeout = ${ms}`),
    client.rows(select),
    client.query('commit'), // after an error, a rollback
  ]);
  return rows;
}
