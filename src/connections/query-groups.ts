import { type Deadline, DeadlineError } from '../deadline.ts';
import { PoolError } from '../postgres/database-error.ts';
import type { TenantClient } from './tenant-client.ts';

/** A query, or a change, that waits for a connection. */
interface Waiting {
  /** Of the request that it belongs to. */
  readonly deadline?: Deadline | undefined;
  readonly reject: (error: unknown) => void;
}

interface QueryGroupsOptions<Item> {
  connect: () => Promise<TenantClient>;
  /** Runs a group on a connection, and settles its items. If it rejects, those that are not settled are rejected. */
  run: (client: TenantClient, group: readonly Item[]) => Promise<void>;
  /** True when an item can be in the group of another one. */
  canJoin: (item: Item, first: Item) => boolean;
  /** Default: 8. */
  maxGroupSize?: () => number;
}

const defaultGroupSize = 8;
/** An item with less time left is alone in its group: its deadline destroys the connection of the whole group. */
const minTimeLeftMs = 1_000;
const maxWaiting = 2_000; // as in the queue for connections

/**
 * Groups of queries of one tenant, each of which uses one connection: those that arrive in one turn of the event loop,
 * or wait for a connection at the same time. An item whose deadline has passed is not run.
 */
export class QueryGroups<Item extends Waiting> {
  readonly #options: QueryGroupsOptions<Item>;
  #waiting: Item[] = [];
  /** Connections that are being waited for. */
  #connecting = 0;
  /** Groups that run. */
  #running = 0;
  #isScheduled = false;

  constructor(options: QueryGroupsOptions<Item>) {
    this.#options = options;
  }

  /** Rejects the item with `POOL_TIMEOUT` when too many wait. */
  add(item: Item): void {
    if (this.#waiting.length >= maxWaiting) {
      item.reject(new PoolError('POOL_TIMEOUT', 'too many queries wait for a connection'));
      return;
    }
    this.#waiting.push(item);
    this.#schedule();
  }

  /**
   * At the end of this turn of the event loop, so that the items of the turn are in one group. An item that finds no
   * other one under way does not wait for the end of the turn: a client that is alone would gain nothing by it.
   */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const runAll = (): void => {
      this.#isScheduled = false;
      while (this.#waiting.length > this.#connecting * this.#maxGroupSize) void this.#runNext();
    };
    if (this.#running + this.#connecting === 0) process.nextTick(runAll);
    else setImmediate(runAll);
  }

  /** Runs a group of those that wait when a connection is free. Never rejects. */
  async #runNext(): Promise<void> {
    const { connect, run } = this.#options;
    this.#connecting++;
    const waiting = this.#waiting.at(-1);
    let client: TenantClient;
    try {
      client = await connect();
    } catch (error) {
      this.#connecting--;
      this.#refuse(waiting, error);
      return;
    }
    this.#connecting--;
    this.#running++;
    const group = this.#take();
    if (this.#waiting.length > 0) this.#schedule(); // before this group runs, which may wait for a lock
    try {
      for (const { deadline } of group) if (deadline) client.endAt(deadline);
      if (group.length > 0) await run(client, group);
    } catch (error) {
      for (const { reject } of group) reject(error);
    } finally {
      this.#running--;
      client.release();
    }
  }

  get #maxGroupSize(): number {
    return this.#options.maxGroupSize?.() ?? defaultGroupSize;
  }

  /** Takes the item that waits longest, and those that can join it. */
  #take(): Item[] {
    const { canJoin } = this.#options;
    const group: Item[] = [];
    const others: Item[] = [];
    const mayJoin = (item: Item, [first]: Item[]): boolean =>
      !first || (group.length < this.#maxGroupSize && hasTime(item) && hasTime(first) && canJoin(item, first));
    for (const item of this.#waiting) {
      if (item.deadline?.passed) item.reject(new DeadlineError());
      else if (mayJoin(item, group)) group.push(item);
      else others.push(item);
    }
    this.#waiting = others;
    return group;
  }

  /**
   * Refuses the items that the connection was for: of those up to `last`, which have waited for it, as many as a group
   * has. The others have a connection of their own to wait for.
   */
  #refuse(last: Item | undefined, error: unknown): void {
    const count = last ? Math.min(this.#waiting.indexOf(last) + 1, this.#maxGroupSize) : 0;
    for (const { reject } of this.#waiting.splice(0, count)) reject(error);
    if (this.#waiting.length > 0) this.#schedule();
  }
}

function hasTime({ deadline }: Waiting): boolean {
  return !deadline || deadline.leftMs >= minTimeLeftMs;
}
