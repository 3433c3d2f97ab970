import type { Logger } from 'pino';
import { type Clock, processClock, type Timer } from '../clock.ts';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import { type ControlDatabase, queryControl } from '../control/database.ts';
import { describeError } from '../describe-error.ts';
import { serverAddress, sourceExpression } from '../postgres/server-address.ts';

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

interface PolledDatabase {
  isUnused: boolean;
  fingerprint: string;
  source: string;
}

/** Polling stops after this many intervals without a use: 60 s, the maximum age of a cached response. */
const maxIdlePolls = 6;

// The order of the columns matters (I2): `numbackends` comes before the counters.
const statement = {
  name: 'write_monitor',
  text: `select numbackends = 0 as "isUnused",
       row(datid, tup_inserted, tup_updated, tup_deleted, stats_reset, (select stats_reset from pg_stat_bgwriter))::text
         as fingerprint,
       ${sourceExpression('datname', 'datid')} as source
     from pg_stat_database
     where datid <> 0 and current_setting('track_counts')::boolean and not pg_is_in_recovery()`,
  values: [],
};

/**
 * Proves that a database has not been written to, without a connection to it. Polls the statistics of each server.
 *
 * Invariants, each with the assumption that it depends on:
 *
 *   I1 (counting) A committed change of rows raises the counters of its database. Its session adds to the counters some
 *      time after the commit, but before it stops being counted in `numbackends`.
 *      Assumes: PostgreSQL counts the rows of the catalogs too, so that TRUNCATE and DDL raise the counters as well;
 *      and `track_counts` is on. Only a superuser can hide a change: by turning `track_counts` off in a session, or
 *      with code that writes to tables without counting. While the server has `track_counts` off, or is in recovery,
 *      the poll returns no rows.
 *
 *   I2 (order) A poll reads the connections of all databases before the first counter.
 *      Assumes: PostgreSQL evaluates the columns of a query from left to right, and takes one snapshot of all
 *      connections when the query reads the first `numbackends`.
 *
 *   I3 (fingerprint) Two polls return equal fingerprints only if no counter changed from the first to the second.
 *      Assumes: counters never decrease, except by a reset, which changes `stats_reset` of the database, and by a crash
 *      of the server, which loses the counters and changes `stats_reset` in `pg_stat_bgwriter`. `datid` differs for
 *      another database that has taken the name.
 *
 *   I4 (identity) A read and a poll with the same source are of the same database in the same run of the same server.
 *      Assumes: the server itself names the source (`sourceExpression`), in the same words to the poll and to the
 *      connection of the read, which asks when it is opened (`ownSource`): PostgreSQL renames and drops no database that
 *      has a session. The address of a server does not suffice: it may lead to another server later, or to several. Nor
 *      would the name of a database: between two polls, another one may have it for a while.
 *
 * Proof that a database did not change from a read at time r until time b, where poll A was answered at a < r, poll B
 * began at b, both returned the same fingerprint, and B found no connection:
 *
 *   1. Suppose that a change W was visible at b, but not to the read. Then W committed after r, and so after a.
 *   2. By 1 and I1, the counters that A returned do not include W.
 *   3. W committed before b. B found no connection, so by I1 and I2 the session of W had added W to the counters before
 *      B read them. The counters that B returned include W.
 *   4. By I3, 2 and 3, the fingerprints differ: a contradiction.
 *
 * A poll that finds a connection proves nothing. A later poll that finds none, with the same fingerprint, also proves
 * the time in between.
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
    const servers = new Set([serverAddress(controlUrl), ...databases.budgets.keys()]);
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
    for (const { source, fingerprint, isUnused } of polled) {
      let state = before?.get(source);
      if (state?.fingerprint !== fingerprint)
        state = { fingerprint, since: answeredAt, unchangedUntil: Number.NEGATIVE_INFINITY };
      else if (isUnused) state.unchangedUntil = Math.max(state.unchangedUntil, beganAt);
      after.set(source, state);
    }
    this.#servers.set(server, after);
  }

  /** Queries the server of the control database on its connection, another server on that of the tenant used last. */
  async #query(server: string): Promise<PolledDatabase[]> {
    const { control, controlUrl, databases } = this.#options;
    if (server === serverAddress(controlUrl))
      return queryControl<PolledDatabase>(control, statement.name, statement.text, statement.values);
    return ((await databases.lastUsedOn(server)?.read(statement)) as PolledDatabase[] | undefined) ?? [];
  }
}
