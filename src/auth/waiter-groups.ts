/** The keys by which waiters of the queue of password hashes are grouped. */
export interface WaiterKeys {
  readonly tenant: string;
  readonly network: string;
}

/** The waiters of one outer key by inner key, in the order in which they start. No list is empty. */
type Groups<Waiter> = Map<string, Waiter[]>;

/** Waiters grouped by tenant and then network, or by network and then tenant. Both levels are served round robin. */
export class WaiterGroups<Waiter extends WaiterKeys> {
  readonly #outer: keyof WaiterKeys;
  readonly #inner: keyof WaiterKeys;
  readonly #groups = new Map<string, Groups<Waiter>>();

  constructor(outer: keyof WaiterKeys) {
    this.#outer = outer;
    this.#inner = outer === 'tenant' ? 'network' : 'tenant';
  }

  add(waiter: Waiter): void {
    const groups = this.#groups.get(waiter[this.#outer]) ?? new Map<string, Waiter[]>();
    this.#groups.set(waiter[this.#outer], groups);
    const waiters = groups.get(waiter[this.#inner]) ?? [];
    groups.set(waiter[this.#inner], waiters);
    waiters.push(waiter);
  }

  /** @returns false when the waiter is not in the queue */
  remove(waiter: Waiter): boolean {
    const groups = this.#groups.get(waiter[this.#outer]);
    const waiters = groups?.get(waiter[this.#inner]);
    const index = waiters?.indexOf(waiter) ?? -1;
    if (!groups || !waiters || index < 0) return false;
    waiters.splice(index, 1);
    if (waiters.length === 0) groups.delete(waiter[this.#inner]);
    if (groups.size === 0) this.#groups.delete(waiter[this.#outer]);
    return true;
  }

  /** The waiter that starts next. */
  get next(): Waiter | undefined {
    const [groups] = this.#groups.values();
    const [waiters] = groups?.values() ?? [];
    return waiters?.[0];
  }

  /** Puts the groups of a waiter last. */
  rotate(waiter: Waiter): void {
    const groups = this.#groups.get(waiter[this.#outer]);
    if (groups) moveToEnd(groups, waiter[this.#inner]);
    moveToEnd(this.#groups, waiter[this.#outer]);
  }

  /**
   * Returns the last waiter of the outer group with the most waiters, there of the largest inner group; undefined if
   * that outer group would not be larger than the requester's own, with the requester in it.
   */
  victimFor(requester: WaiterKeys): Waiter | undefined {
    const largest = longest(this.#groups.values(), size);
    const own = size(this.#groups.get(requester[this.#outer]));
    return largest && size(largest) > own + 1 ? longest(largest.values(), ({ length }) => length)?.at(-1) : undefined;
  }

  /** As `victimFor`, among the inner groups of the requester's outer group. */
  victimWithin(requester: WaiterKeys): Waiter | undefined {
    const groups = this.#groups.get(requester[this.#outer]);
    const largest = groups && longest(groups.values(), ({ length }) => length);
    const own = groups?.get(requester[this.#inner])?.length ?? 0;
    return largest && largest.length > own + 1 ? largest.at(-1) : undefined;
  }
}

function size(groups: Groups<unknown> | undefined): number {
  let sum = 0;
  for (const waiters of groups?.values() ?? []) sum += waiters.length;
  return sum;
}

function longest<List>(lists: Iterable<List>, lengthOf: (list: List) => number): List | undefined {
  let found: List | undefined;
  for (const list of lists) if (found === undefined || lengthOf(list) > lengthOf(found)) found = list;
  return found;
}

function moveToEnd<Value>(map: Map<string, Value>, key: string): void {
  const value = map.get(key);
  if (value === undefined) return;
  map.delete(key);
  map.set(key, value);
}
