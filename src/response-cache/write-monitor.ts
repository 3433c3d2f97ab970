import type { Logger } from 'pino';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import { type ControlDatabase, queryControl } from '../control/database.ts';
import { describeError } from '../log/describe-error.ts';
import { type DatabaseCounters, databaseCountersSql, isProvedUnchanged } from '../postgres/change-counters.ts';
import { serverAddress } from '../postgres/server-address.ts';
import { type Clock, processClock, type Timer } from '../runtime/clock.ts';

interface WriteMonitorOptions {
  control: ControlDatabase;
  controlUrl: string;
  databases: Pick<TenantDatabases, 'budgets' | 'lastUsedOn'>;
  log: Logger;
  /** Interval of the polls, in ms. */
  everyMs?: number;
  /** A monotonic clock in milliseconds. */
  now?: (() => number) | undefined;
  /** Sets the timer of the polls; replaced in simulations. */
  clock?: Clock;
}

/** The results of the polls for one database. */
interface DatabaseState {
  readonly fingerprint: string;
  /** Time of the response to the first poll with this fingerprint. */
  readonly since: number;
  /** Start of the latest poll that returned this fingerprint and found no connection. */
  unchangedUntil: number;
}

/** Polling stops after this many intervals without a use: 60 s, the maximum age of a cached response. */
const maxIdlePolls = 6;

const statement = { name: 'write_monitor', text: databaseCountersSql, values: [] };

/**
 * Proves that a database has not been written to, without a connection to it. Polls the counters of each server. Why
 * equal counters prove that a database did not change from a read until the begin of a poll is said at
 * `isProvedUnchanged`: poll A is the first one with the fingerprint, the snapshot is that of the read, and poll B is
 * the latest one that found no connection. It needs one more invariant:
 *
 *   I4 (identity) A read and a poll with the same source are of the same database in the same run of the same server.
 *      Assumes: the server itself names the source (`sourceExpression`), in the same words to the poll and to the
 *      connection of the read, which asks when it is opened (`ownSource`): PostgreSQL renames and drops no database
 *      that has a session. The address of a server does not suffice: it may lead to another server later, or to
 *      several. Nor would the name of a database: between two polls, another one may have it for a while.
 */
export class WriteMonitor {
  readonly #options: WriteMonitorOptions;
  readonly #now: () => number;
  /** The poll results by server, then by source. */
  readonly #servers = new Map<string, Map<string, DatabaseState>>();
  readonly #clock: Clock;
  #timer: Timer | undefined;
  #polling: Promise<void> | undefined;

  constructor(options: WriteMonitorOptions) {
    this.#options = options;
    this.#clock = options.clock ?? processClock;
    this.#now = options.now ?? this.#clock.now;
  }

  /**
   * Returns the latest moment until which the database of a source is proved unchanged since `readAt`, a moment before
   * the read. Both are in ms by the clock of the monitor. Returns -∞ without a proof.
   */
  unchangedUntil(source: string, readAt: number): number {
    let until = Number.NEGATIVE_INFINITY;
    for (const databases of this.#servers.values()) {
      const state = databases.get(source);
      if (state && readAt > state.since) until = Math.max(until, state.unchangedUntil);
    }
    return until;
  }

  /**
   * Polls at once, so that every later read can be proved unchanged, and then at each interval while `countUses` grows.
   * @param countUses returns the number of uses of the cache since the start of the process
   */
  start(countUses: () => number): void {
    const poll = (): void => {
      this.#polling ??= this.poll().finally(() => (this.#polling = undefined));
    };
    poll();
    let previous = countUses();
    let idlePolls = maxIdlePolls;
    this.#timer = this.#clock.setInterval(() => {
      const count = countUses();
      idlePolls = count === previous ? idlePolls + 1 : 0;
      previous = count;
      if (idlePolls < maxIdlePolls) poll();
    }, this.#options.everyMs ?? 10_000);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    this.#clock.clearInterval(this.#timer);
    await this.#polling;
  }

  /**
   * Polls the server of the control database and every server with open tenant databases. A poll that fails proves
   * nothing new, and the earlier proofs stay.
   */
  async poll(): Promise<void> {
    const { controlUrl, databases, log } = this.#options;
    const servers = new Set([serverAddress(controlUrl), ...databases.budgets.all.keys()]);
    const polls = [...servers].map(server =>
      this.#poll(server).catch(error =>
        log.debug({ event: 'write_monitor_failed', server, err: describeError(error) }, 'could not poll a server'),
      ),
    );
    await Promise.all(polls);
  }

  async #poll(server: string): Promise<void> {
    const beganAt = this.#now();
    const polled = await this.#query(server);
    const answeredAt = this.#now();
    const before = this.#servers.get(server);
    const after = new Map<string, DatabaseState>();
    for (const counters of polled) {
      const { source, fingerprint } = counters;
      let state = before?.get(source);
      if (state?.fingerprint !== fingerprint)
        state = { fingerprint, since: answeredAt, unchangedUntil: Number.NEGATIVE_INFINITY };
      else if (isProvedUnchanged(state.fingerprint, counters))
        state.unchangedUntil = Math.max(state.unchangedUntil, beganAt);
      after.set(source, state);
    }
    this.#servers.set(server, after);
  }

  /** Queries the server of the control database on its connection, another server on that of the tenant used last. */
  async #query(server: string): Promise<DatabaseCounters[]> {
    const { control, controlUrl, databases } = this.#options;
    if (server === serverAddress(controlUrl))
      return queryControl<DatabaseCounters>(control, statement.name, statement.text, statement.values);
    return ((await databases.lastUsedOn(server)?.reads.read(statement)) as DatabaseCounters[] | undefined) ?? [];
  }
}
