import type { GrantReply, GrantRequest, ServerUse } from './exchange-messages.ts';
import { ExchangeTimes } from './exchange-times.ts';
import { applyChange, type Grant, type GrantChange, type ServerGrants } from './grants.ts';
import { planExchange } from './plan-exchange.ts';
import { Silence } from './silence.ts';

interface GrantHolderOptions {
  /** The name of this process, which no other process has ever had. */
  id: string;
  kind: 'service' | 'command';
  /** Maximum connections to the server, over all processes. */
  budget: number;
  /** Connections to the control database that this process wants, if that is on the server; otherwise 0. */
  base: number;
}

const maxAttempts = 4;

/**
 * The part of one process in the connection budget of one server. It decides, and does nothing itself: its caller sends
 * the requests, returns the replies, obeys `limit` and `reserved` at once after every call, and asks `mayOpen` before
 * it opens a connection, before each message with which it logs in, and once more when the connection is established.
 * Times are those of one monotonic clock, in ms.
 *
 * An exchange reads the grants of the server and writes a change of them, if nobody else wrote in between. It holds no
 * lock meanwhile, so a process that stops in the middle of it stops nobody else.
 *
 * I1: The grants and reserved connections of a server sum to its budget at most, or fall until they do. Every change is
 *     calculated from the grants that it replaces, because it has no effect unless their version is still the current
 *     one.
 * I2: A process has at most `limit` connections or is closing those above it, and `limit ≤ granted`, also in the
 *     control database. The limit falls before the change that lowers `granted` is sent, and `granted` stays at the
 *     number of connections that still exist. The limit rises only after the change is confirmed. A change whose reply
 *     was lost may come into effect later, but not after a later one is confirmed, because it has an older version.
 *     The same holds for the connections to the control database and `reserved`, which only grows. A process has
 *     one of them without a grant before its first exchange is confirmed, and from the removal of its grant until its
 *     end; the others leave room for that (`planExchange`). The processes of one machine are in this state one at a
 *     time (`EntryLock`). Assumes that those of several machines seldom are at the same moment: each further one is
 *     above the budget. So is one whose grant was removed during a pause, until its next exchange is confirmed.
 * I3: Another process removes a grant only when its owner can open no connection and none exists, and never lowers it.
 *     1. An owner opens connections for `freshMs` after its last confirmed exchange began. The other process has seen
 *        its heartbeat unchanged for longer, so it opens none, until another exchange of it is confirmed.
 *     2. After that, the other process finds no connection of the owner at the server. Assumes that a server has
 *        accepted or refused a login one second after the last message of the client.
 *     3. The removal has no effect if the owner had an exchange meanwhile: that has changed the version.
 */
export class GrantHolder {
  readonly #options: GrantHolderOptions;
  readonly #silence = new Silence();
  readonly #peak = new RecentPeak();
  readonly #times = new ExchangeTimes();
  /** Silent processes whose connections are not known. */
  #silent: readonly Grant[] = [];
  #heartbeat = 0;
  #limit = 0;
  #reserved = 0;
  #granted = 0;
  #isGivingBack = false;
  #isWatching = false;
  #lacksBase = false;
  #readAt = 0;
  #attempts = 0;
  #change: GrantChange | undefined;
  #target = 0;
  #server: ServerGrants = { version: 0, grants: [] };

  constructor(options: GrantHolderOptions) {
    this.#options = options;
    this.#lacksBase = options.base > 0;
  }

  /** Maximum connections. Those above it must be closed as soon as they are not in use. */
  get limit(): number {
    return this.#limit;
  }

  /**
   * Maximum connections to the control database, beside `limit`. Before the first grant, one may be open all the same.
   */
  get reserved(): number {
    return this.#reserved;
  }

  /** True while a connection may be opened, as far as time is concerned. */
  mayOpen(now: number): boolean {
    return this.#times.isFresh(now);
  }

  /** True when `begin` should be called. */
  isDue(now: number, use: ServerUse): boolean {
    return this.#times.isDue(now, this.#isUrgent(use));
  }

  /** Begins an exchange. No other one may be under way. */
  begin(now: number): GrantRequest {
    this.#times.begin(now);
    this.#attempts = 0;
    return this.#read(now);
  }

  /** Continues the exchange. @returns the next request; undefined when the exchange has ended */
  receive(now: number, reply: GrantReply, use: ServerUse): GrantRequest | undefined {
    switch (reply.kind) {
      case 'grants':
        return this.#onGrants(now, reply.server, use);
      case 'connections':
        for (const grant of this.#silent) if (!reply.of.includes(grant.holder)) this.#silence.observeGone(grant);
        return this.#plan(now, use);
      case 'written':
        this.#onConfirmed(now);
        return undefined;
      case 'outdated':
        if (++this.#attempts < maxAttempts) return this.#read(now);
        this.#times.giveWay(now);
        return undefined;
      case 'failed':
        this.#times.fail(now);
        return undefined;
    }
  }

  #isUrgent({ held, waiting }: ServerUse): boolean {
    if (this.#isWatching || this.#lacksBase) return true;
    if (this.#isGivingBack) return held < this.#granted;
    return waiting > 0 && held >= this.#limit;
  }

  #read(now: number): GrantRequest {
    this.#readAt = now;
    return { kind: 'read' };
  }

  #onGrants(now: number, server: ServerGrants, use: ServerUse): GrantRequest | undefined {
    const silence = this.#silence;
    this.#server = server;
    const own = server.grants.find(({ holder }) => holder === this.#options.id);
    // The limits are above the grant only if another process removed the grant, or if the control database lost a
    // change, for example when it was restored from a backup.
    this.#limit = Math.min(this.#limit, own?.granted ?? 0);
    this.#reserved = Math.min(this.#reserved, own?.reserved ?? 0);
    silence.observe(server.grants, this.#readAt, now);
    const others = server.grants.filter(grant => grant !== own);
    this.#silent = others.filter(grant => silence.isSilent(grant) && !silence.isGone(grant));
    this.#isWatching = others.some(grant => silence.isSuspect(grant) && !silence.isSilent(grant));
    if (this.#silent.length === 0) return this.#plan(now, use);
    const names = (grants: readonly Grant[]): string[] => grants.map(({ holder }) => holder);
    const end = names(this.#silent.filter(grant => silence.mayEnd(grant)));
    return { kind: 'find connections', of: names(this.#silent), end };
  }

  #plan(now: number, { held, inUse, waiting }: ServerUse): GrantRequest {
    const { id, kind, budget, base } = this.#options;
    const peak = this.#peak.add(now, inUse + waiting);
    const { target, change } = planExchange({
      kind,
      budget,
      base,
      server: this.#server,
      holder: id,
      held,
      wanted: peak > 0 ? Math.min(budget, peak + 1) : 0,
      // Not counted from the recorded one: a grant that was removed and added again must not look unchanged.
      heartbeat: ++this.#heartbeat,
      silence: this.#silence,
    });
    this.#target = target;
    this.#limit = Math.min(this.#limit, target);
    this.#change = change;
    return { kind: 'write', change };
  }

  #onConfirmed(now: number): void {
    if (!this.#change) return;
    const { granted, reserved } = this.#change.own;
    const hasGrown = granted + reserved > this.#granted + this.#reserved;
    this.#server = applyChange(this.#server, this.#change);
    this.#granted = granted;
    this.#isGivingBack = granted > this.#target;
    this.#limit = this.#target;
    this.#reserved = reserved;
    this.#lacksBase = reserved < Math.min(2, this.#options.base);
    this.#times.confirm(now, hasGrown);
  }
}

const windowMs = 5_000;

/** The largest of the values of the last 5 s. */
class RecentPeak {
  #values: { at: number; value: number }[] = [];

  /** @returns the peak, `value` included */
  add(now: number, value: number): number {
    this.#values = [...this.#values.filter(({ at }) => at > now - windowMs), { at: now, value }];
    return Math.max(...this.#values.map(each => each.value));
  }
}
