import type { Deadline } from '../deadline.ts';
import { problem } from '../errors.ts';

/** The requester of a password hash. The queue takes turns by tenant, then by client network. */
export interface HashRequester {
  readonly tenant: string;
  /** An IPv4 address or an IPv6 network. */
  readonly network: string;
  /** Aborted when the client closes its connection: no one would receive the result. */
  readonly clientLeft?: AbortSignal;
  /** The deadline of the request; the request is refused when it passes. */
  readonly deadline?: Deadline;
}

interface Waiter extends HashRequester {
  readonly start: () => void;
  readonly refuse: (error: Error) => void;
}

/** The waiters of one tenant by network, in the order in which the networks are served. No list is empty. */
type Networks = Map<string, Waiter[]>;

/**
 * The requests that wait for a password hash. Tenants are served in turns, and the networks of a tenant in turns, so
 * that a flood of logins delays only logins of the same network. A waiter whose client leaves is removed.
 */
export class HashQueue {
  readonly #tenants = new Map<string, Networks>();
  readonly #maxLength: number;
  #length = 0;

  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  get length(): number {
    return this.#length;
  }

  /**
   * Resolves when it is the requester's turn.
   * @throws {Problem} `overloaded` when the queue is full and the requester's network holds its fair share of it, or
   *   when another requester takes this place, or at the deadline; `invalid_request` when the client leaves
   */
  async enqueue(requester: HashRequester): Promise<void> {
    const { clientLeft, deadline } = requester;
    if (clientLeft?.aborted) throw connectionClosed();
    if (this.#length >= this.#maxLength) this.#makeRoom(requester);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { ...requester, start: resolve, refuse: reject };
    const giveUp = (error: Error): void => {
      this.#remove(waiter);
      reject(error);
    };
    const leave = (): void => giveUp(connectionClosed());
    this.#add(waiter);
    clientLeft?.addEventListener('abort', leave);
    const forgetDeadline = deadline?.onPass(() => giveUp(problem('overloaded')));
    return promise.finally(() => {
      clientLeft?.removeEventListener('abort', leave);
      forgetDeadline?.();
    });
  }

  /** Starts the next waiter. @returns false when there is none */
  startNext(): boolean {
    const [networks] = this.#tenants.values();
    const [waiters] = networks?.values() ?? [];
    const [waiter] = waiters ?? [];
    if (!networks || !waiter) return false;
    this.#remove(waiter);
    moveToEnd(networks, waiter.network);
    moveToEnd(this.#tenants, waiter.tenant);
    waiter.start();
    return true;
  }

  /**
   * Refuses the last waiter of the longest list, unless the requester's own list would then be the longest: first by
   * tenant, then by network within the tenant.
   */
  #makeRoom({ tenant, network }: HashRequester): void {
    const ownTenant = this.#tenants.get(tenant);
    const longestTenant = longest(this.#tenants.values(), size);
    const isFairShare = longestTenant === ownTenant || size(longestTenant) <= size(ownTenant) + 1;
    const networks = isFairShare ? ownTenant : longestTenant;
    const waiters = networks && longest(networks.values(), ({ length }) => length);
    const own = isFairShare ? (ownTenant?.get(network)?.length ?? 0) + 1 : 0;
    const last = waiters && waiters.length > own ? waiters.at(-1) : undefined;
    if (!last) throw problem('overloaded');
    this.#remove(last);
    last.refuse(problem('overloaded'));
  }

  #add(waiter: Waiter): void {
    const networks = this.#tenants.get(waiter.tenant) ?? new Map<string, Waiter[]>();
    this.#tenants.set(waiter.tenant, networks);
    const waiters = networks.get(waiter.network) ?? [];
    networks.set(waiter.network, waiters);
    waiters.push(waiter);
    this.#length++;
  }

  #remove(waiter: Waiter): void {
    const networks = this.#tenants.get(waiter.tenant);
    const waiters = networks?.get(waiter.network);
    const index = waiters?.indexOf(waiter) ?? -1;
    if (!networks || !waiters || index < 0) return;
    waiters.splice(index, 1);
    if (waiters.length === 0) networks.delete(waiter.network);
    if (networks.size === 0) this.#tenants.delete(waiter.tenant);
    this.#length--;
  }
}

function connectionClosed(): Error {
  return problem('invalid_request', { detail: 'The client closed the connection.' });
}

function size(networks: Networks | undefined): number {
  let sum = 0;
  for (const waiters of networks?.values() ?? []) sum += waiters.length;
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
