import type { Logger } from 'pino';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import { type ControlDatabase, queryControl } from '../control/database.ts';
import { describeError } from '../log.ts';
import { serverAddress, sourceExpression } from '../postgres/server-address.ts';

interface WriteMonitorOptions {
  control: ControlDatabase;
  controlUrl: string;
  databases: TenantDatabases;
  log: Logger;
  /** Time from poll to poll. */
  everyMs?: number;
  /** A clock in milliseconds that never goes back. */
  now?: (() => number) | undefined;
}

/** What is known of one database. */
interface Watched {
  fingerprint: string;
  /** When the first poll that found this fingerprint had been answered. */
  since: number;
  /** When the last poll began that found this fingerprint, and nobody connected. */
  until: number;
}

const maxIdlePolls = 6; // times that it would have polled: as long as answers live

// PostgreSQL begins at the left: who is connected is looked up, for all databases, before the first counter is.
const statement = {
  name: 'write_watch',
  text: `select numbackends = 0 as "isUnused",
       row(datid, tup_inserted, tup_updated, tup_deleted, stats_reset, (select stats_reset from pg_stat_bgwriter))::text
         as fingerprint,
       ${sourceExpression('datname')} as source
     from pg_stat_database
     where datid <> 0 and current_setting('track_counts')::boolean and not pg_is_in_recovery()`,
  values: [],
};

interface Polled {
  isUnused: boolean;
  fingerprint: string;
  source: string;
}

/**
 * Proves that nobody has written to a database, without a connection to it. Why it is a proof:
 *
 *   PostgreSQL counts the rows that are inserted, updated and deleted in a database, those of its catalogs too, so that
 *   TRUNCATE and DDL count as well. A session adds what it has counted to these numbers after it has committed: some
 *   time after, but always before it stops being one of those who are connected.
 *
 *   so when nobody is connected, and the numbers are looked up after that, every change that could be seen when the poll
 *   began is in them. A change that a read could not see yet was not in the numbers of a poll that had been answered
 *   before that read. When both are equal, there has been none from the read to the beginning of the later poll. The
 *   numbers never go back, unless they are reset, which leaves another time of the reset; a crash of the server loses
 *   them, and leaves another time in `pg_stat_bgwriter`.
 *
 *   which database it is, of which run of which server, is told by the server itself, to a poll and to the connection of
 *   a read in the same words: an address may lead elsewhere tomorrow, or to several servers.
 *
 * A database to which somebody is connected may be proved unchanged later, when they have gone. Only a superuser can hide
 * changes: by `track_counts`, which stops the counting, or by what writes to tables past it.
 */
export class WriteMonitor {
  readonly #options: WriteMonitorOptions;
  readonly #now: () => number;
  /** By server, then by source. */
  readonly #servers = new Map<string, Map<string, Watched>>();
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;

  constructor(options: WriteMonitorOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** Until when it is proved that nobody has changed what was read from a source after `readAt`; -∞ when it is not. */
  unchangedUntil(source: string, readAt: number): number {
    let until = Number.NEGATIVE_INFINITY;
    for (const databases of this.#servers.values()) {
      const watched = databases.get(source);
      if (watched && readAt > watched.since) until = Math.max(until, watched.until);
    }
    return until;
  }

  /** Polls at once: what is read after that can be proved unchanged. Then again while the number of uses grows. */
  start(uses: () => number): void {
    const poll = (): void => {
      this.#polling ??= this.poll().finally(() => (this.#polling = undefined));
    };
    poll();
    let seen = uses();
    let unused = maxIdlePolls;
    this.#timer = setInterval(() => {
      const count = uses();
      unused = count === seen ? unused + 1 : 0;
      seen = count;
      if (unused < maxIdlePolls) poll();
    }, this.#options.everyMs ?? 10_000).unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#polling;
  }

  /** Looks at every server on which tenants are open, and at that of the control database. Where that fails, nothing is proved, and nothing forgotten. */
  async poll(): Promise<void> {
    const { controlUrl, databases, log } = this.#options;
    const servers = new Set([serverAddress(controlUrl), ...databases.budgets.keys()]);
    const polls = [...servers].map(server =>
      this.#poll(server).catch(error =>
        log.debug({ event: 'write_watch_failed', server, err: describeError(error) }, 'a server could not be watched'),
      ),
    );
    await Promise.all(polls);
  }

  async #poll(server: string): Promise<void> {
    const beganAt = this.#now();
    const polled = await this.#ask(server);
    const answeredAt = this.#now();
    const before = this.#servers.get(server);
    const after = new Map<string, Watched>();
    for (const { source, fingerprint, isUnused } of polled) {
      let watched = before?.get(source);
      if (watched?.fingerprint !== fingerprint)
        watched = { fingerprint, since: answeredAt, until: Number.NEGATIVE_INFINITY };
      else if (isUnused) watched.until = Math.max(watched.until, beganAt);
      after.set(source, watched);
    }
    this.#servers.set(server, after);
  }

  /** By a connection to the control database; on a server where it is not, by that of the tenant who was asked for last. */
  async #ask(server: string): Promise<Polled[]> {
    const { control, controlUrl, databases } = this.#options;
    if (server === serverAddress(controlUrl))
      return queryControl<Polled>(control, statement.name, statement.text, statement.values);
    return ((await databases.lastUsedOn(server)?.read(statement)) as Polled[] | undefined) ?? [];
  }
}
