import { isConnectionLost, PoolError } from '../../lib/postgres/database-error.ts';
import type { Statement } from '../../lib/postgres/statement.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { QueryGroups } from './query-groups.ts';
import type { TenantClient } from './tenant-client.ts';

/** A read of a short statement. */
export interface SharedRead<Row extends object> {
  readonly select: Statement<Row>;
  /** The deadline of the request that reads. */
  readonly deadline?: Deadline | undefined;
}

interface Waiting extends SharedRead<object> {
  resolve: (rows: object[]) => void;
  reject: (error: unknown) => void;
}

interface SharedReadsOptions {
  connect: () => Promise<TenantClient>;
  /** Reads on a connection in use. */
  readOn: <Row extends object>(client: TenantClient, shared: SharedRead<Row>) => Promise<Row[]>;
  /** Reads as if there were no others: on a connection of its own. */
  readAlone: <Row extends object>(shared: SharedRead<Row>) => Promise<Row[]>;
}

const maxGroupSize = 8;
/** The time after which a read stops waiting for other reads of its connection, in ms. */
const slowMs = 100;
/** The time for which the reads of a slow statement are alone, in ms. */
const rememberMs = 10_000;

/**
 * Reads of one tenant that share a connection: those of one statement that arrive in one turn
 * of the event loop, or wait for a connection at the same time. They are sent in one packet,
 * and PostgreSQL executes one after the other. To acquire a connection, to send on it and to
 * wake its process costs more than to read a record.
 *
 * Each read behaves as if it were alone:
 *
 *   1. Each is a transaction by itself, so one that fails does not fail the others.
 *   2. Reads of one connection are of one statement, which is short: it finds few records by an
 *      index. So a read waits for others for less than a millisecond, or for a lock on a table
 *      that it reads itself.
 *   3. A statement can be slow all the same, when many records match one of its conditions and
 *      few match all. After 100 ms, the reads behind the one that runs are made again, each on
 *      a connection of its own, and the first rows count. For a while, reads of the statement
 *      are alone.
 *   4. When the connection is lost or cannot be opened, or is destroyed because the deadline of
 *      another read has passed, a read is made again on a connection of its own. A read with
 *      little time left does not share a connection (`QueryGroups`).
 */
export class SharedReads {
  readonly #options: SharedReadsOptions;
  readonly #groups: QueryGroups<Waiting>;
  /**
   * The time until which the reads of a statement are alone, by `performance.now()`. Bounded,
   * because the number of statement names is.
   */
  readonly #aloneUntil = new Map<string, number>();

  constructor(options: SharedReadsOptions) {
    this.#options = options;
    this.#groups = new QueryGroups({
      connect: options.connect,
      run: (client, group) => this.#run(client, group),
      keyOf: ({ select }) => select.name,
      maxGroupSize: ({ select }) => (this.#isAlone(select) ? 1 : maxGroupSize),
    });
  }

  /** Returns the rows of a short statement. */
  read<Row extends object>(shared: SharedRead<Row>): Promise<Row[]> {
    const { readAlone } = this.#options;
    if (this.#isAlone(shared.select)) return readAlone(shared);
    return new Promise<Row[]>((resolve, reject) => {
      const fail = (error: unknown): void => {
        if (isConnectionLost(error)) readAlone(shared).then(resolve, reject);
        else reject(error);
      };
      const settle = resolve as (rows: object[]) => void; // rows of its own statement
      this.#groups.add({ ...shared, resolve: settle, reject: fail });
    });
  }

  #isAlone({ name }: Statement<object>): boolean {
    return (this.#aloneUntil.get(name) ?? 0) > performance.now();
  }

  async #run(client: TenantClient, group: readonly Waiting[]): Promise<void> {
    const { readOn, readAlone } = this.#options;
    const running = new Set(group);

    const readAgain = (waiting: Waiting): void => {
      running.delete(waiting);
      readAlone(waiting).then(waiting.resolve, waiting.reject);
    };

    const read = async (waiting: Waiting): Promise<void> => {
      try {
        waiting.resolve(await readOn(client, waiting));
      } catch (error) {
        // The read is made again.
        if (!running.has(waiting)) return;
        const isDestroyed =
          error instanceof PoolError && group.some(({ deadline }) => deadline?.passed);
        if (isDestroyed) readAgain(waiting);
        else waiting.reject(error);
      } finally {
        running.delete(waiting);
      }
    };

    const first = group[0]!;
    const others = group.slice(1);
    if (others.length === 0) return read(first);

    const timer = setTimeout(() => {
      this.#aloneUntil.set(first.select.name, performance.now() + rememberMs);
      const [, ...behind] = running;
      for (const waiting of behind) readAgain(waiting);
    }, slowMs);

    await client.sendTogether(() => group.map(read));
    clearTimeout(timer);
  }
}
