import { isConnectionLost, sqlState } from '../postgres/database-error.ts';
import type { RowValues, Statement } from '../postgres/statement.ts';
import type { Deadline } from '../runtime/deadline.ts';
import { LargeReads } from './large-reads.ts';
import type { ReadMemory } from './read-memory.ts';
import { type ResourceState, resourceLockKey, resourceState } from './resource-lock.ts';
import { SharedReads } from './shared-reads.ts';
import type { TenantClient } from './tenant-client.ts';
import { traceQuery } from './trace-steps.ts';

/** The rows of a read, whether they may be cached, and the database that they came from. */
export interface ReadResult {
  readonly rows: RowValues[];
  /** True when no write of the resource was under way when the read began. */
  readonly cacheable: boolean;
  /** The database; see `sourceExpression`. */
  readonly source: string;
}

const queryCanceled = '57014';

interface TenantReadsOptions {
  connect: () => Promise<TenantClient>;
  /** Runs a query on a connection of its own. */
  withClient: <T>(query: (client: TenantClient) => Promise<T>, deadline?: Deadline) => Promise<T>;
  /** Shared by the reads of all tenants. */
  memory: ReadMemory;
}

/** The reads of one tenant. If the connection of a read is lost meanwhile, it reads once more on another one. */
export class TenantReads {
  readonly #withClient: TenantReadsOptions['withClient'];
  readonly #large: LargeReads;
  readonly #shared: SharedReads;

  constructor({ connect, withClient, memory }: TenantReadsOptions) {
    this.#withClient = withClient;
    this.#large = new LargeReads(memory);
    this.#shared = new SharedReads({
      connect,
      readOn: (client, { select, deadline }) =>
        this.#large.runAtOnce(select.name, read => client.receiveFor(read, () => client.rows(select)), deadline),
      readAlone: ({ select, deadline }) => this.#readAlone(select, deadline),
    });
  }

  /** Returns the rows. Reads of a short statement share a connection with others. A request that is traced reads alone. */
  read(select: Statement, deadline?: Deadline): Promise<RowValues[]> {
    const isAlone = !select.isShort || deadline?.trace || this.#large.isLarge(select.name);
    if (isAlone || this.#large.isHeldBy(deadline)) return this.#readAlone(select, deadline);
    return this.#shared.read({ select, deadline });
  }

  /** Returns the rows of a statement that may read many records; undefined when PostgreSQL has ended it after `ms`. */
  async readWithin(select: Statement, ms: number, deadline?: Deadline): Promise<RowValues[] | undefined> {
    try {
      return await this.#run(select, client => rowsWithin(client, select, ms), deadline);
    } catch (error) {
      if (sqlState(error) === queryCanceled) return undefined;
      throw error;
    }
  }

  /** Returns the rows of a reading statement of a resource, and whether they may be cached. */
  readCacheable(select: Statement, resource: string, deadline?: Deadline): Promise<ReadResult> {
    const key = resourceLockKey(resource);
    return this.#run(
      select,
      async client => {
        // In one round trip, but one after the other: the lock is tried before the rows are read.
        const [[state], rows] = await client.sendTogether(() => [client.rows(resourceState(key)), client.rows(select)]);
        const { free = false } = (state ?? {}) as Partial<ResourceState>;
        const { source = '', locks } = client;
        return { rows, cacheable: free && source !== '' && !locks.has(key), source };
      },
      deadline,
    );
  }

  #readAlone(select: Statement, deadline?: Deadline): Promise<RowValues[]> {
    return this.#run(select, client => client.rows(select), deadline);
  }

  /** Runs a query on a connection of its own, in its turn if the statement has large results or no index. */
  #run<T>(select: Statement, query: (client: TenantClient) => Promise<T>, deadline?: Deadline): Promise<T> {
    const run = (client: TenantClient) => traceQuery(deadline?.trace, select, () => query(client));
    return this.#large.run(
      select.name || (select.group ?? ''),
      read => this.#retryOnce(client => client.receiveFor(read, () => run(client)), deadline),
      deadline,
      select.isUnindexed,
    );
  }

  async #retryOnce<T>(query: (client: TenantClient) => Promise<T>, deadline?: Deadline): Promise<T> {
    try {
      return await this.#withClient(query, deadline);
    } catch (error) {
      if (!isConnectionLost(error)) throw error;
      return this.#withClient(query, deadline);
    }
  }
}

/** Returns the rows of a statement, which PostgreSQL ends after `ms` with SQLSTATE 57014. */
async function rowsWithin(client: TenantClient, select: Statement, ms: number): Promise<RowValues[]> {
  const [, , rows] = await client.sendTogether(() => [
    client.query('begin read only'),
    client.query(`set local statement_timeout = ${ms}`),
    client.rows(select),
    client.query('commit'), // after an error, a rollback
  ]);
  return rows;
}
