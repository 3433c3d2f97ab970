import { clientNetwork } from '../../lib/http/request/client-address.ts';
import { problem } from '../../lib/problems.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';

/** The requester of a password hash. */
export interface HashRequester {
  readonly tenant: string;
  /** An IPv4 address or an IPv6 network. */
  readonly network: string;
  /** Aborted when the client closes its connection, so that nobody would receive the result. */
  readonly clientLeft?: AbortSignal;
  /** The deadline of the request, which is refused when it passes. */
  readonly deadline?: Deadline;
}

/**
 * Prefix length of an IPv6 client's network: a subscriber often has a whole /56 (RFC 6177),
 * which counts as one client.
 */
const networkBits = 56;

/** Returns the requester of a hash that a request needs. */
export function hashRequester(context: RequestContext): HashRequester {
  const { tenant, origin } = context;
  return {
    tenant: tenant.guid,
    network: clientNetwork(origin.ipAddress, networkBits),
    clientLeft: context.clientLeft(),
    deadline: context.deadline,
  };
}

interface Waiter extends HashRequester {
  readonly start: () => void;
  readonly refuse: (error: Error) => void;
}

/** The things by which waiters are grouped. */
type Key = 'network' | 'tenant';
const otherKey = { network: 'tenant', tenant: 'network' } as const;

/**
 * The requests that wait for a password hash. Turns alternate: one by client network, over all
 * tenants, and one by tenant. So the only waiter of a network waits for at most two turns per
 * network ahead of it, and the only waiter of a tenant for at most two per tenant ahead of it:
 * neither one network that knows many tenants nor many networks that flood one tenant can delay
 * such a waiter for longer. A waiter whose client leaves is removed.
 */
export class HashQueue {
  /**
   * All waiters, twice: in the order of the turns by network, and in that of the turns by
   * tenant.
   */
  readonly #waiters: Record<Key, readonly Waiter[]> = { network: [], tenant: [] };
  #nextTurn: Key = 'network';
  readonly #maxLength: number;

  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  get length(): number {
    return this.#waiters.network.length;
  }

  /**
   * Resolves when it is the requester's turn.
   * @throws {Problem} `overloaded` when the queue is full and the requester's network holds its
   *   fair share of it, or when another requester takes this place, or at the deadline;
   *   `invalid_request` when the client leaves
   */
  async enqueue(requester: HashRequester): Promise<void> {
    const { clientLeft, deadline } = requester;
    if (clientLeft?.aborted) throw connectionClosed();

    if (this.length >= this.#maxLength) this.#makeRoom(requester);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { ...requester, start: resolve, refuse: reject };

    const giveUp = (error: Error): void => {
      this.#remove(waiter);
      reject(error);
    };

    const leave = (): void => giveUp(connectionClosed());
    this.#update(waiters => [...waiters, waiter]);
    clientLeft?.addEventListener('abort', leave);
    const forgetDeadline = deadline?.onPass(() => giveUp(problem('overloaded')));

    return promise.finally(() => {
      clientLeft?.removeEventListener('abort', leave);
      forgetDeadline?.();
    });
  }

  /**
   * Starts the next waiter.
   * @returns false when there is none
   */
  startNext(): boolean {
    const [waiter] = this.#waiters[this.#nextTurn];
    if (!waiter) return false;
    this.#nextTurn = otherKey[this.#nextTurn];
    this.#remove(waiter);
    this.#update((waiters, key) => afterTurn(waiters, key, waiter));
    waiter.start();
    return true;
  }

  /**
   * Refuses a waiter of the network with the most waiters over all tenants. If the network of
   * the requester would then have the most, refuses one of the tenant with the most waiters; if
   * that is the tenant of the requester, one of the network with the most waiters of this
   * tenant.
   */
  #makeRoom(requester: HashRequester): void {
    const { network, tenant } = this.#waiters;
    const ofOwnTenant = tenant.filter(waiter => waiter.tenant === requester.tenant);
    const victim =
      victimFor(requester, network, 'network') ??
      victimFor(requester, tenant, 'tenant') ??
      victimFor(requester, ofOwnTenant, 'network');
    if (!victim) throw problem('overloaded');
    this.#remove(victim);
    victim.refuse(problem('overloaded'));
  }

  #remove(waiter: Waiter): void {
    this.#update(waiters => waiters.filter(each => each !== waiter));
  }

  #update(change: (waiters: readonly Waiter[], key: Key) => Waiter[]): void {
    for (const key of ['network', 'tenant'] as const) {
      this.#waiters[key] = change(this.#waiters[key], key);
    }
  }
}

/**
 * Moves the group of a waiter that has started to the end. Within the group, the waiters that
 * share the other key with that waiter come last.
 */
function afterTurn(waiters: readonly Waiter[], key: Key, started: Waiter): Waiter[] {
  const rank = (waiter: Waiter): number => {
    if (waiter[key] !== started[key]) return 0;
    return waiter[otherKey[key]] === started[otherKey[key]] ? 2 : 1;
  };
  return waiters.toSorted((one, other) => rank(one) - rank(other));
}

/**
 * Returns the waiter to refuse: in the largest group, the last of the waiters with the most
 * frequent other key. Undefined if the largest group is no larger than that of the requester,
 * who counts as a member.
 */
function victimFor(
  requester: HashRequester,
  waiters: readonly Waiter[],
  key: Key,
): Waiter | undefined {
  const largest = largestGroup(waiters, key);
  const own = waiters.filter(waiter => waiter[key] === requester[key]);
  return largest.length > own.length + 1 ? largestGroup(largest, otherKey[key]).at(-1) : undefined;
}

/**
 * Returns the largest group of waiters with the same key; of equals, the one whose turn comes
 * last.
 */
function largestGroup(waiters: readonly Waiter[], key: Key): Waiter[] {
  const groups = [...Map.groupBy(waiters, waiter => waiter[key]).values()];
  return groups.sort((one, other) => one.length - other.length).at(-1) ?? [];
}

function connectionClosed(): Error {
  return problem('invalid_request', { detail: 'The client closed the connection.' });
}
