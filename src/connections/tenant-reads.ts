import { isConnectionLost, sqlState } from '../postgres/database-error.ts';
import type { RowValues, Statement } from '../postgres/statement.ts';
import type { Deadline } from '../runtime/deadline.ts';
import { Read, type ReadMemory } from './read-memory.ts';
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

  /**
   * Returns the rows. Reads of a short statement share a connection with others. A request that is traced reads alone.
   */
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

/** A statement with a large result counts as large for the next minute. */
const rememberMs = 60_000;

/**
 * Runs the large reads of one tenant one after the other. A list of 10 MB takes PostgreSQL and this process some 0.4 s
 * and 30 MB of memory; so a tenant that requests such lists without a pause keeps one core of its server busy, not
 * all, and other requests run in between. Small reads do not wait.
 *
 * A statement is known to be large only after its first large result. From then on its reads wait before they get a
 * connection. Until then they run together, and `ReadMemory` pauses all but one of those that turn out to be large. A
 * read that may sort a whole table takes as long, and waits in the same way.
 */
export class LargeReads {
  readonly #memory: ReadMemory;
  /**
   * The time until which a statement counts as large, by `performance.now()`. Bounded: names come from the source code.
   */
  readonly #largeUntil = new Map<string, number>();
  #last: Promise<unknown> = Promise.resolve();

  constructor(memory: ReadMemory) {
    this.#memory = memory;
  }

  /** True when the work has a large result in memory: it must not wait for other reads, which may wait for its end. */
  isHeldBy(work: Deadline | undefined): boolean {
    return this.#memory.isHeldBy(work);
  }

  /** True when the reads of the statement wait for each other. */
  isLarge(statement: string): boolean {
    return (this.#largeUntil.get(statement) ?? 0) >= performance.now();
  }

  /**
   * Runs a read in its turn.
   * @param statement name of the statement
   * @param query must count the bytes that it receives as those of the read
   * @param deadline of the work that holds the result; without one, the result counts only until it has arrived
   * @param isLong true when the read takes long whatever its result, and so waits as those of a large statement do
   */
  async run<T>(statement: string, query: (read: Read) => Promise<T>, deadline?: Deadline, isLong = false): Promise<T> {
    const run = () => this.runAtOnce(statement, query, deadline);
    if (!(isLong || this.isLarge(statement)) || this.isHeldBy(deadline)) return run();
    const reading = this.#last.then(run);
    this.#last = reading.catch(() => {});
    return reading;
  }

  /** Like `run`, for a read that has a connection: it must not wait for its turn. */
  async runAtOnce<T>(statement: string, query: (read: Read) => Promise<T>, deadline?: Deadline): Promise<T> {
    const read = new Read(this.#memory, this, deadline ?? {});
    try {
      return await query(read);
    } finally {
      if (read.isLarge) {
        this.#largeUntil.set(statement, performance.now() + rememberMs);
        if (deadline) deadline.onEnd(() => this.#memory.end(read.work));
        else this.#memory.end(read.work);
      }
    }
  }
}
