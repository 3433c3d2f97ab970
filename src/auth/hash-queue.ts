import { problem } from '../errors.ts';
import type { Deadline } from '../runtime/deadline.ts';
import { WaiterGroups, type WaiterKeys } from './waiter-groups.ts';

/** The requester of a password hash. `network` is an IPv4 address or an IPv6 network. */
export interface HashRequester extends WaiterKeys {
  /** Aborted when the client closes its connection: no one would receive the result. */
  readonly clientLeft?: AbortSignal;
  /** Of the request, which is refused when it passes. */
  readonly deadline?: Deadline;
}

interface Waiter extends HashRequester {
  readonly start: () => void;
  readonly refuse: (error: Error) => void;
}

/**
 * The requests that wait for a password hash. Turns alternate: one by client network, over all tenants, and one by
 * tenant. So the only waiter of a network waits for at most two turns per network ahead of it, and the only waiter of a
 * tenant for at most two per tenant ahead of it: neither one network that knows many tenants nor many networks that
 * flood one tenant can delay it for longer. A waiter whose client leaves is removed.
 */
export class HashQueue {
  readonly #byNetwork = new WaiterGroups<Waiter>('network');
  readonly #byTenant = new WaiterGroups<Waiter>('tenant');
  #isNetworkNext = true;
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
    const waiter = (this.#isNetworkNext ? this.#byNetwork : this.#byTenant).next;
    if (!waiter) return false;
    this.#isNetworkNext = !this.#isNetworkNext;
    this.#remove(waiter);
    this.#byNetwork.rotate(waiter);
    this.#byTenant.rotate(waiter);
    waiter.start();
    return true;
  }

  /**
   * Refuses the last waiter of the network with the most waiters over all tenants; if the requester's own network would
   * then have the most, of the tenant with the most waiters; if that is the requester's own, of the network with the
   * most waiters of this tenant.
   */
  #makeRoom(requester: HashRequester): void {
    const victim =
      this.#byNetwork.victimFor(requester) ??
      this.#byTenant.victimFor(requester) ??
      this.#byTenant.victimWithin(requester);
    if (!victim) throw problem('overloaded');
    this.#remove(victim);
    victim.refuse(problem('overloaded'));
  }

  #add(waiter: Waiter): void {
    this.#byNetwork.add(waiter);
    this.#byTenant.add(waiter);
    this.#length++;
  }

  #remove(waiter: Waiter): void {
    if (!this.#byNetwork.remove(waiter)) return;
    this.#byTenant.remove(waiter);
    this.#length--;
  }
}

function connectionClosed(): Error {
  return problem('invalid_request', { detail: 'The client closed the connection.' });
}
