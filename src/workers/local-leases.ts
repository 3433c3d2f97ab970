import { leaseSpan, type Rate, type RateLimitResult } from '../http/rate-limit/sliding-window.ts';
import type { CountedCalls } from './messages.ts';

/** What the primary process returned for calls of one client. */
interface Counted {
  /** Leased calls. */
  readonly calls: number;
  /** True for the reply to the request that `renew` prepared as one for a lease. */
  readonly isAsking: boolean;
  /** Calls that are left to the client, without the leased ones. */
  readonly remaining: number;
  readonly resetMs: number;
  /** When the request was sent: the lease is counted as of this time and `leaseSpan`, or later. */
  readonly sentAt: number;
  readonly now: number;
}

interface LeaseRequest {
  readonly wanted: number;
  readonly unused: number;
  /** At most one request of a client is under way that asks for a lease, or will be followed by one that does. */
  readonly isAsking: boolean;
}

interface Client {
  readonly rate: Rate;
  /** Calls of the lease, and those that the worker may still make without a message, until `until`. */
  size: number;
  unused: number;
  /** The end of the lease; without one, when the client is forgotten. */
  until: number;
  /** The lease was neither given back nor reported as ended. */
  isOpen: boolean;
  /** Calls that are left to the client after the leased ones, and when its limit is reset. */
  remaining: number;
  resetAt: number;
  /** Calls to lease next. */
  wanted: number;
  /** A request for a lease is under way. */
  isAsking: boolean;
  /** All calls until then are rejected without a message. */
  rejectedUntil: number;
}

/** The value of `unused` in a request without a statement about a lease. */
export const noLeaseEnded = -1;

const firstWanted = 2;
const maxWanted = 64;
/** How long a rejection is remembered at most, in milliseconds: a message per client and second costs little. */
const maxRejectedMs = 1_000;

/**
 * The leases of a worker. A client that calls once has none. A lease that is used up before its end is followed by one
 * of twice as many calls, and another one by one of as many as were used.
 */
export class LocalLeases {
  readonly #clients = new Map<string, Client>();

  /** Makes a call without a message. @returns undefined when the primary process must count it */
  take(key: string, now: number): RateLimitResult | undefined {
    const client = this.#clients.get(key);
    if (!client) return undefined;
    const resetMs = Math.max(1, client.resetAt - now);
    if (now < client.rejectedUntil) return { remaining: 0, resetMs };
    if (client.unused === 0 || now >= client.until) return undefined;
    client.unused--;
    return { remaining: client.remaining + client.unused + 1, resetMs };
  }

  /** Prepares a request to the primary process. */
  renew(key: string, rate: Rate, now: number): LeaseRequest {
    const span = leaseSpan(rate);
    const client = this.#clients.get(key);
    if (span === 0 || client?.isAsking) return { wanted: 0, unused: noLeaseEnded, isAsking: false };
    if (!client) {
      this.#clients.set(key, { ...newClient(rate), until: now + span, isAsking: true });
      return { wanted: 0, unused: noLeaseEnded, isAsking: true };
    }
    const unused = closeLease(client);
    client.isAsking = true;
    return { wanted: client.wanted, unused, isAsking: true };
  }

  receive(key: string, rate: Rate, { calls, isAsking, remaining, resetMs, sentAt, now }: Counted): void {
    const isRejected = remaining < 0;
    const client = this.#clients.get(key) ?? (isRejected ? newClient(rate) : undefined);
    if (!client) return;
    this.#clients.set(key, client);
    client.resetAt = now + resetMs;
    if (isAsking) client.isAsking = false;
    if (isRejected) client.rejectedUntil = now + Math.min(resetMs, maxRejectedMs);
    if (calls === 0) return;
    Object.assign(client, { size: calls, unused: calls, until: sentAt + leaseSpan(rate), isOpen: true });
    client.remaining = Math.max(0, remaining - calls);
  }

  /** Gives a lease back. @returns its unused calls */
  giveBack(key: string): number {
    const client = this.#clients.get(key);
    return client ? closeLease(client) : 0;
  }

  /** Ends leases whose time is over, and forgets clients that did not call since. @returns the leases that ended */
  end(now: number): CountedCalls[] {
    const ended: CountedCalls[] = [];
    for (const [key, client] of this.#clients) {
      if (now < client.until || client.isAsking || now < client.rejectedUntil) continue;
      const { max, windowMs } = client.rate;
      const isUsed = client.isOpen && client.unused < client.size;
      if (client.isOpen) ended.push([key, max, windowMs, 0, 0, closeLease(client)]);
      if (isUsed) client.until = now + leaseSpan(client.rate);
      else this.#clients.delete(key);
    }
    return ended;
  }
}

/** Closes the lease, if there is one. @returns its unused calls */
function closeLease(client: Client): number {
  const { isOpen, size, unused } = client;
  if (!isOpen) return 0;
  client.wanted = unused === 0 ? Math.min(maxWanted, size * 2) : Math.max(firstWanted, size - unused);
  Object.assign(client, { unused: 0, isOpen: false });
  return unused;
}

function newClient(rate: Rate): Client {
  return {
    rate,
    size: 0,
    unused: 0,
    until: 0,
    isOpen: false,
    remaining: 0,
    resetAt: 0,
    wanted: firstWanted,
    isAsking: false,
    rejectedUntil: 0,
  };
}
