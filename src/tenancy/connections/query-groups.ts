import { PoolError } from '../../lib/postgres/database-error.ts';
import { type Deadline, DeadlineError } from '../../lib/runtime/deadline.ts';
import type { TenantClient } from './tenant-client.ts';

/** A query, or a change, that waits for a connection. */
interface Waiting {
  /** The deadline of the request that the item belongs to. */
  readonly deadline?: Deadline | undefined;
  readonly reject: (error: unknown) => void;
}

interface QueryGroupsOptions<Item> {
  connect: () => Promise<TenantClient>;
  /**
   * Runs a group on a connection, and settles its items. If the run rejects, items that are not
   * settled are rejected.
   */
  run: (client: TenantClient, group: readonly Item[]) => Promise<void>;
  /** Items with the same key can be in one group. */
  keyOf: (item: Item) => string;
  /** Returns the current maximum for the group of an item. */
  maxGroupSize: (item: Item) => number;
}

/**
 * An item with less time left is alone in its group: its deadline destroys the connection of
 * the whole group.
 */
const minTimeLeftMs = 1_000;
const maxWaiting = 2_000; // as in the queue for connections

/**
 * Groups the queries of one tenant. A group uses one connection; its queries have the same key,
 * and arrive in one turn of the event loop, or wait for a connection at the same time. Each
 * group waits for a connection of its own, so no query waits for those of another key. An item
 * whose deadline has passed is not run.
 */
export class QueryGroups<Item extends Waiting> {
  readonly #options: QueryGroupsOptions<Item>;
  /** For each key, the group that waits for a connection: further items join it. */
  readonly #open = new Map<string, Item[]>();
  /** Items that wait for a connection. */
  #waiting = 0;
  /** Groups that wait for a connection, or run. */
  #active = 0;

  constructor(options: QueryGroupsOptions<Item>) {
    this.#options = options;
  }

  /**
   * Adds the item to a group, which asks for its connection at the end of this turn of the
   * event loop, so that the items of the turn are in one group. The first of all groups asks at
   * once: a client that is alone would gain nothing by the delay. Rejects the item with
   * `POOL_TIMEOUT` when too many wait.
   */
  add(item: Item): void {
    if (this.#waiting >= maxWaiting) {
      item.reject(new PoolError('POOL_TIMEOUT', 'too many queries wait for a connection'));
      return;
    }

    this.#waiting++;
    const key = this.#options.keyOf(item);
    const open = this.#open.get(key);

    if (open && open.length < this.#options.maxGroupSize(item) && hasTime(item)) {
      open.push(item);
      return;
    }

    const group = [item];
    if (hasTime(item)) this.#open.set(key, group);
    if (this.#active++ === 0) process.nextTick(() => this.#run(group));
    else setImmediate(() => this.#run(group));
  }

  /** Runs a group when it has a connection. Never rejects. */
  async #run(group: Item[]): Promise<void> {
    const { connect, run } = this.#options;
    let items: readonly Item[] = group;
    try {
      const client = await connect().finally(() => this.#close(group));
      items = this.#split(group);
      try {
        for (const { deadline } of items) if (deadline) client.endAt(deadline);
        if (items.length > 0) await run(client, items);
      } finally {
        client.release();
      }
    } catch (error) {
      for (const { reject } of items) reject(error);
    } finally {
      this.#active--;
    }
  }

  /** No more items join the group. */
  #close(group: readonly Item[]): void {
    this.#waiting -= group.length;
    const key = this.#options.keyOf(group[0]!);
    if (this.#open.get(key) === group) this.#open.delete(key);
  }

  /**
   * Returns the items of a group that can run together now. The others get groups of their own.
   */
  #split(group: readonly Item[]): Item[] {
    const together: Item[] = [];
    const mayJoin = (item: Item, [first]: Item[]): boolean =>
      !first ||
      (together.length < this.#options.maxGroupSize(first) && hasTime(item) && hasTime(first));
    for (const item of group) {
      if (item.deadline?.passed) item.reject(new DeadlineError());
      else if (mayJoin(item, together)) together.push(item);
      else this.add(item);
    }
    return together;
  }
}

function hasTime({ deadline }: Waiting): boolean {
  return !deadline || deadline.leftMs >= minTimeLeftMs;
}
