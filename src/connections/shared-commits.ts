import { type Deadline, DeadlineError } from '../deadline.ts';
import { PoolError } from '../postgres/database-error.ts';
import type { RowValues, Statement } from '../postgres/statement.ts';
import { commitTogether } from './commit-together.ts';
import { resourceLockKey } from './resource-lock.ts';
import type { TenantClient } from './tenant-client.ts';

/** A change that one statement makes as a whole. */
export interface SingleChange {
  /** The actor of the change, as JSON for the audit log. */
  actor: string;
  /** Has `withActor`. */
  change: Statement;
  /** The changed resource, if its responses are cached. */
  resource: string | undefined;
  /** Notifies every process that the resource changes. */
  announce: () => Promise<void>;
  /** Of the request that makes the change. */
  deadline?: Deadline | undefined;
}

interface Waiting extends SingleChange {
  resolve: (rows: RowValues[]) => void;
  reject: (error: unknown) => void;
}

interface SharedCommitsOptions {
  connect: () => Promise<TenantClient>;
  /** Makes a change in a transaction of its own, on a connection in use. */
  commit: (client: TenantClient, change: SingleChange) => Promise<RowValues[]>;
  /** Makes a change as if there were no others: on a connection of its own. */
  changeAlone: (change: SingleChange) => Promise<RowValues[]>;
}

const maxGroupSize = 8;
/** A change with less time left is committed alone: its deadline destroys the connection of the whole group. */
const minTimeLeftMs = 1_000;
/** Changes that are committed alone after a group that failed: while many are refused, few are made twice. */
const aloneAfterFailure = 64;
const maxWaiting = 2_000; // as in the queue for connections

/**
 * Commits changes of one tenant together: those that arrive in one turn of the event loop, or wait for a connection at
 * the same time. A commit waits for the disk, and each transaction wakes a process of the server twice, which together
 * costs more than the insert and its audit entry.
 *
 * Each change behaves as if it were alone:
 *
 *   1. Each statement sets its actor before the triggers of its rows run, so each audit entry names its own request.
 *   2. When a statement fails or waits for a lock, the transaction is rolled back, and each change is made again on a
 *      connection of its own. So no change fails or waits because of another one.
 *   3. A change is never made twice: it is made again only if PostgreSQL reported that the transaction failed.
 *   4. A change whose deadline has passed is not sent. If it passes later, the connection is destroyed, and the outcome
 *      of all its changes is unknown, as that of a single one. So a change with little time left is committed alone.
 *   5. All changes of a transaction are of one resource, whose lock the connection holds, announced (`WriteLocks`).
 *      Changes of other resources get another connection, so that they do not wait for its locks.
 */
export class SharedCommits {
  readonly #options: SharedCommitsOptions;
  #waiting: Waiting[] = [];
  /** Connections that are being waited for. */
  #connecting = 0;
  #isScheduled = false;
  /** Changes that are yet to be committed alone. */
  #alone = 0;

  constructor(options: SharedCommitsOptions) {
    this.#options = options;
  }

  /** Makes a change. @returns the rows of its statement */
  change(change: SingleChange): Promise<RowValues[]> {
    if (this.#waiting.length >= maxWaiting)
      return Promise.reject(new PoolError('POOL_TIMEOUT', 'too many changes wait for a connection'));
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...change, resolve, reject });
      this.#schedule();
    });
  }

  /** At the end of this turn of the event loop, so that the changes of the turn are committed together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      while (this.#waiting.length > this.#connecting * this.#groupSize) void this.#commitNext();
    });
  }

  /** Commits the changes that wait when a connection is free. Never rejects. */
  async #commitNext(): Promise<void> {
    this.#connecting++;
    const waiting = this.#waiting.at(-1);
    let client: TenantClient;
    try {
      client = await this.#options.connect();
    } catch (error) {
      this.#connecting--;
      this.#refuse(waiting, error);
      return;
    }
    this.#connecting--;
    const group = this.#take();
    if (this.#waiting.length > 0) this.#schedule(); // before this commit, which may wait for a lock
    try {
      if (group.length > 0) await this.#commit(client, group);
    } catch (error) {
      for (const { reject } of group) reject(error);
    } finally {
      client.release();
    }
  }

  async #commit(client: TenantClient, group: Waiting[]): Promise<void> {
    const options = this.#options;
    for (const { deadline } of group) if (deadline) client.endAt(deadline);
    const [first] = group as [Waiting];
    if (first.resource !== undefined) await client.locks.hold(resourceLockKey(first.resource), first.announce);
    if (group.length === 1) {
      first.resolve(await options.commit(client, first));
      return;
    }
    const statements = group.map(({ change, actor }) => change.withActor?.(actor) ?? change);
    const rows = await commitTogether(client, statements);
    if (!rows) this.#alone = aloneAfterFailure;
    for (const [index, change] of group.entries()) {
      if (rows) change.resolve(rows[index] ?? []);
      else options.changeAlone(change).then(change.resolve, change.reject);
    }
  }

  get #groupSize(): number {
    return this.#alone > 0 ? 1 : maxGroupSize;
  }

  /** Takes the change that waits longest, and those that wait and can share its transaction. */
  #take(): Waiting[] {
    const group: Waiting[] = [];
    const others: Waiting[] = [];
    const mayJoin = (change: Waiting, [first]: Waiting[]): boolean =>
      !first ||
      (group.length < this.#groupSize && change.resource === first.resource && hasTime(change) && hasTime(first));
    for (const change of this.#waiting) {
      if (change.deadline?.passed) change.reject(new DeadlineError());
      else if (mayJoin(change, group)) group.push(change);
      else others.push(change);
    }
    this.#waiting = others;
    if (group.length > 0 && this.#alone > 0) this.#alone--;
    return group;
  }

  /**
   * Refuses the changes that the connection was for: of those up to `last`, which have waited for it, as many as a
   * group has. The others have a connection of their own to wait for.
   */
  #refuse(last: Waiting | undefined, error: unknown): void {
    const count = last ? Math.min(this.#waiting.indexOf(last) + 1, this.#groupSize) : 0;
    for (const { reject } of this.#waiting.splice(0, count)) reject(error);
    if (this.#waiting.length > 0) this.#schedule();
  }
}

function hasTime({ deadline }: SingleChange): boolean {
  return !deadline || deadline.leftMs >= minTimeLeftMs;
}
