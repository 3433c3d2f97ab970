import { applyChange, type Grant, type GrantChange, type ServerGrants } from './grants.ts';
import { planExchange } from './plan-exchange.ts';
import { RecentPeak } from './recent-peak.ts';
import { Silence } from './silence.ts';

/** A request to the outside, of which one at a time is under way. */
export type GrantRequest =
  | { readonly kind: 'read' }
  | { readonly kind: 'write'; readonly change: GrantChange }
  /** Which of these holders still have a connection to the server? */
  | { readonly kind: 'find connections'; readonly of: readonly string[] };

export type GrantReply =
  | { readonly kind: 'grants'; readonly server: ServerGrants }
  /** The change is committed. */
  | { readonly kind: 'written' }
  /** The change had no effect, because its version was not the current one. */
  | { readonly kind: 'outdated' }
  | { readonly kind: 'connections'; readonly of: readonly string[] }
  /** It is not known whether the request had an effect. It may still have one, at any later time. */
  | { readonly kind: 'failed' };

export interface ServerUse {
  /** Connections that the server counts: in use, idle, being opened and being closed. */
  readonly held: number;
  readonly inUse: number;
  /** Requests that wait for a connection. */
  readonly waiting: number;
}

interface GrantHolderOptions {
  /** The name of this process, which no other process has ever had. */
  id: string;
  /** Maximum connections to the server, over all processes. */
  budget: number;
  /** Connections outside of the grants that this process has to the server: those to the control database. */
  reserved: number;
}

/** How long after the start of a confirmed exchange connections may be opened. Shorter than `silenceMs`. */
const freshMs = 2_000;
const heartbeatMs = 1_000;
const urgentMs = 100;
const maxUrgentMs = 400;
const retryMs = 250;
const maxAttempts = 4;

/**
 * The part of one process in the connection budget of one server. It decides, and does nothing itself: its caller sends
 * the requests, returns the replies, obeys `limit` at once after every call, and asks `mayOpen` before it opens a
 * connection and once more when the connection is established. Times are those of one monotonic clock, in ms.
 *
 * An exchange reads the grants of the server and writes a change of them, if nobody else wrote in between. It holds no
 * lock meanwhile, so a process that stops in the middle of it stops nobody else.
 *
 * I1: The grants of a server sum to its budget at most, or fall until they do. Every change is calculated from the
 *     grants that it replaces, because it has no effect unless their version is still the current one.
 * I2: A process has at most `limit` connections or is closing those above it, and `limit ≤ granted`, also in the
 *     control database. The limit falls before the change that lowers `granted` is sent, and `granted` stays at the
 *     number of connections that still exist. The limit rises only after the change is confirmed. A change whose reply
 *     was lost may come into effect later, but not after a later one is confirmed, because it has an older version.
 * I3: Another process removes a grant only when its owner can open no connection and none exists, and never lowers it.
 *     1. An owner opens connections for `freshMs` after its last confirmed exchange began. The other process has seen
 *        its heartbeat unchanged for longer, so it opens none, until another exchange of it is confirmed.
 *     2. After that, the other process finds no connection of the owner at the server.
 *     3. The removal has no effect if the owner had an exchange meanwhile: that has changed the version.
 */
export class GrantHolder {
  readonly #options: GrantHolderOptions;
  readonly #silence = new Silence();
  readonly #peak = new RecentPeak();
  /** Silent processes whose connections are not known. */
  #silent: readonly Grant[] = [];
  /** Silent processes without a connection, and their heartbeats. */
  #gone = new Map<string, number>();
  #heartbeat = 0;
  #limit = 0;
  #granted = 0;
  #isGivingBack = false;
  #isWatching = false;
  /** When the exchange under way began; undefined when none is. */
  #sentAt: number | undefined;
  #readAt = 0;
  #attempts = 0;
  #change: GrantChange | undefined;
  #target = 0;
  #server: ServerGrants = { version: 0, grants: [] };
  /** When the last confirmed exchange began. */
  #confirmedAt = Number.NEGATIVE_INFINITY;
  #nextAt = Number.NEGATIVE_INFINITY;
  #urgentAt = Number.NEGATIVE_INFINITY;
  #urgentMs = urgentMs;

  constructor(options: GrantHolderOptions) {
    this.#options = options;
  }

  /** Maximum connections. Those above it must be closed as soon as they are not in use. */
  get limit(): number {
    return this.#limit;
  }

  /** True while a connection may be opened, as far as time is concerned. */
  mayOpen(now: number): boolean {
    return now - this.#confirmedAt < freshMs;
  }

  /** True when `begin` should be called. */
  isDue(now: number, use: ServerUse): boolean {
    if (this.#sentAt !== undefined) return false;
    if (now >= this.#nextAt) return true;
    return now >= this.#urgentAt && this.#isUrgent(use);
  }

  /** Begins an exchange. No other one may be under way. */
  begin(now: number): GrantRequest {
    this.#sentAt = now;
    this.#attempts = 0;
    return this.#read(now);
  }

  /** Continues the exchange. @returns the next request; undefined when the exchange has ended */
  receive(now: number, reply: GrantReply, use: ServerUse): GrantRequest | undefined {
    switch (reply.kind) {
      case 'grants':
        return this.#onGrants(now, reply.server, use);
      case 'connections':
        for (const { holder, heartbeat } of this.#silent)
          if (!reply.of.includes(holder)) this.#gone.set(holder, heartbeat);
        return this.#plan(now, use);
      case 'written':
        return this.#onConfirmed(now);
      case 'outdated':
        if (++this.#attempts < maxAttempts) return this.#read(now);
        return this.#end(now, urgentMs);
      case 'failed':
        return this.#end(now, retryMs);
    }
  }

  #isUrgent({ held, waiting }: ServerUse): boolean {
    if (this.#isWatching) return true;
    if (this.#isGivingBack) return held < this.#granted;
    return waiting > 0 && held >= this.#limit;
  }

  #read(now: number): GrantRequest {
    this.#readAt = now;
    return { kind: 'read' };
  }

  #onGrants(now: number, server: ServerGrants, use: ServerUse): GrantRequest | undefined {
    this.#server = server;
    const own = server.grants.find(({ holder }) => holder === this.#options.id);
    // The limit is above the grant only if another process removed the grant, or if the control database lost a change,
    // for example when it was restored from a backup.
    this.#limit = Math.min(this.#limit, own?.granted ?? 0);
    this.#silence.observe(server.grants, this.#readAt, now);
    const others = server.grants.filter(grant => grant !== own);
    this.#gone = new Map(others.filter(grant => this.#isGone(grant)).map(grant => [grant.holder, grant.heartbeat]));
    this.#silent = others.filter(grant => this.#silence.isSilent(grant) && !this.#isGone(grant));
    this.#isWatching = others.some(grant => this.#silence.isSuspect(grant) && !this.#silence.isSilent(grant));
    if (this.#silent.length === 0) return this.#plan(now, use);
    return { kind: 'find connections', of: this.#silent.map(({ holder }) => holder) };
  }

  #plan(now: number, { held, inUse, waiting }: ServerUse): GrantRequest {
    const { id, budget, reserved } = this.#options;
    const peak = this.#peak.add(now, inUse + waiting);
    const { target, change } = planExchange({
      budget,
      server: this.#server,
      holder: id,
      held,
      wanted: peak > 0 ? Math.min(budget, peak + 1) : 0,
      reserved,
      // Not counted from the recorded one: a grant that was removed and added again must not look unchanged.
      heartbeat: ++this.#heartbeat,
      isSilent: grant => this.#silence.isSilent(grant),
      isGone: grant => this.#isGone(grant),
    });
    this.#target = target;
    this.#limit = Math.min(this.#limit, target);
    this.#change = change;
    return { kind: 'write', change };
  }

  #onConfirmed(now: number): undefined {
    if (!this.#change) return undefined;
    this.#server = applyChange(this.#server, this.#change);
    const { granted } = this.#change.own;
    this.#urgentMs = granted > this.#granted ? urgentMs : Math.min(maxUrgentMs, 2 * this.#urgentMs);
    this.#granted = granted;
    this.#isGivingBack = granted > this.#target;
    this.#limit = this.#target;
    this.#confirmedAt = this.#sentAt ?? Number.NEGATIVE_INFINITY;
    return this.#end(now, heartbeatMs);
  }

  /** True when the process is silent, and was found without a connection since it became so. */
  #isGone(grant: Grant): boolean {
    return this.#silence.isSilent(grant) && this.#gone.get(grant.holder) === grant.heartbeat;
  }

  #end(now: number, nextMs: number): undefined {
    const sentAt = this.#sentAt ?? now;
    this.#nextAt = Math.max(sentAt + nextMs, nextMs === heartbeatMs ? 0 : now + nextMs);
    this.#urgentAt = now + this.#urgentMs;
    this.#sentAt = undefined;
    return undefined;
  }
}
