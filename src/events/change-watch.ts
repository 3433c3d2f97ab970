import type { Logger } from 'pino';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import type { Announce } from '../control/announcer.ts';
import type { ChangeFeed } from '../control/change-feed.ts';
import { changeTopics } from '../control/change-topics.ts';
import { type ControlDatabase, queryStatement } from '../control/database.ts';
import type { Directory } from '../control/directory.ts';
import type { TenantRecord } from '../control/records.ts';
import { describeError } from '../log/describe-error.ts';
import { serverAddress } from '../postgres/server-address.ts';
import type { RowValues } from '../postgres/statement.ts';

interface ChangeWatchOptions {
  control: ControlDatabase;
  controlUrl: string;
  feed: ChangeFeed;
  announce: Announce;
  databases: Pick<TenantDatabases, 'open' | 'lastUsedOn'>;
  directory: Pick<Directory, 'tenant'>;
  processId: string;
  log: Logger;
}

/** Interval of the polls of the servers, while somebody follows a tenant. */
const pollMs = 1_000;
/** How often a process says which tenants it follows, and how long the others remember it. */
const interestEveryMs = 20_000;
const interestForMs = 60_000;

/** SQL for what the server has counted of the rows that were written to a database: the same text in every session. */
export const writtenSql = `concat_ws(' ', oid, pg_stat_get_db_tuples_inserted(oid), pg_stat_get_db_tuples_updated(oid),
                                     extract(epoch from pg_stat_get_db_stat_reset_time(oid)))`;

/**
 * Reads whether databases may have changed, without a connection to them: how many rows were written, and whether a
 * session of another program exists, whose rows PostgreSQL may count up to 10 s later. A session whose kind the login
 * may not see counts as one.
 */
const pollText = `
  select datname::text as name, ${writtenSql} as written,
         oid = any (array(select datid from pg_stat_activity
                           where application_name not like 'backoffice-api%' and datid is not null
                             and coalesce(backend_type, 'client backend') = 'client backend')) as "isShared"
    from pg_database where datname = any ($1)`;

/**
 * Called when a tenant may have new changes.
 * @param written what the server has counted, if a poll has seen it: the same text in every process
 */
export type Wake = (written?: string) => void;

interface Follower {
  readonly wake: Wake;
  readonly hearsOthers: boolean;
}

/**
 * Wakes those who follow the changes of tenants, when there may be new ones: this process has committed a change; another
 * one says so; or a poll of the server shows that somebody has written. It holds no connection to a tenant's database: a
 * server beside that of the control database is polled on the connection of one tenant.
 *
 * A process announces its commits only while another one follows the tenant, so that they cost nothing otherwise. It
 * learns that through the change feed of the control database: `?<process>/<guid>` is a follower, `<guid>` a change.
 */
export class ChangeWatch {
  readonly #options: ChangeWatchOptions;
  readonly #followers = new Map<string, Set<Follower>>();
  /** Until when tenants are followed by another process. */
  readonly #interest = new Map<string, number>();
  readonly #written = new Map<string, string>();
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  /** The polls that have not ended, by server: one that does not respond delays no other. */
  readonly #polling = new Map<string, Promise<void>>();
  #saidAt = Number.NEGATIVE_INFINITY;

  constructor(options: ChangeWatchOptions) {
    this.#options = options;
    options.feed.subscribe(changeTopics.changes, key => {
      if (key.startsWith('?')) this.#remember(key);
      else if (key === '*') for (const guid of this.#followers.keys()) this.#wakeHearing(guid);
      else this.#wakeHearing(key);
    });
  }

  /**
   * Calls `wake` when the tenant may have new changes, perhaps too often.
   * @param hearsOthers false if every process has such a follower: then the process that commits a change serves it,
   *   and a poll finds what it left, so nobody needs to announce commits
   * @returns a function that ends the calls
   */
  subscribe(guid: string, wake: Wake, hearsOthers = true): () => void {
    const followers = this.#followers.get(guid) ?? new Set();
    const follower: Follower = { wake, hearsOthers };
    this.#followers.set(guid, followers.add(follower));
    if (hearsOthers) this.#announce(this.#interestIn(guid));
    this.#timer ??= setInterval(() => this.#tick(), pollMs).unref();
    return () => {
      followers.delete(follower);
      if (followers.size === 0 && this.#followers.get(guid) === followers) this.#followers.delete(guid);
    };
  }

  /** This process has committed a change of the tenant, or may have. */
  notify(guid: string): void {
    this.#wake(guid);
    const until = this.#interest.get(guid);
    if (until === undefined) return;
    if (until < performance.now()) this.#interest.delete(guid);
    else this.#announce(guid);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#followers.clear();
    await this.#looking;
    await Promise.all(this.#polling.values());
  }

  #wake(guid: string, written?: string): void {
    for (const { wake } of this.#followers.get(guid) ?? []) wake(written);
  }

  #wakeHearing(guid: string): void {
    for (const { wake, hearsOthers } of this.#followers.get(guid) ?? []) if (hearsOthers) wake();
  }

  /** A process follows a tenant. What this one has committed before it knew that is announced now. */
  #remember(key: string): void {
    const [processId, guid = ''] = key.slice(1).split('/');
    if (processId === this.#options.processId) return;
    const isNew = !this.#interest.has(guid);
    this.#interest.set(guid, performance.now() + interestForMs);
    if (isNew) this.#announce(guid);
  }

  #interestIn(guid: string): string {
    return `?${this.#options.processId}/${guid}`;
  }

  #announce(key: string): void {
    this.#options.announce(changeTopics.changes, key).catch(() => {}); // a poll shows the changes
  }

  #tick(): void {
    if (this.#followers.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#written.clear();
      return;
    }
    const now = performance.now();
    if (now - this.#saidAt >= interestEveryMs) {
      this.#saidAt = now;
      for (const [guid, followers] of this.#followers)
        if ([...followers].some(({ hearsOthers }) => hearsOthers)) this.#announce(this.#interestIn(guid));
    }
    this.#looking ??= this.#poll().finally(() => (this.#looking = undefined));
  }

  async #poll(): Promise<void> {
    const { directory } = this.#options;
    const found = await Promise.all(
      // A tenant that cannot be read, such as for its password, does not keep the others from being polled.
      [...this.#followers.keys()].map(guid => directory.tenant(guid).catch(() => undefined)),
    );
    const tenants = found.filter(tenant => tenant?.status === 'active') as TenantRecord[];
    const byServer = Map.groupBy(tenants, ({ databaseUrl }) => serverAddress(databaseUrl));
    const { log } = this.#options;
    for (const [server, those] of byServer) {
      if (this.#polling.has(server)) continue;
      const poll = this.#pollServer(server, those)
        .catch(error =>
          log.debug({ event: 'change_poll_failed', err: describeError(error) }, 'could not poll a server'),
        )
        .finally(() => this.#polling.delete(server));
      this.#polling.set(server, poll);
    }
  }

  async #pollServer(server: string, tenants: readonly TenantRecord[]): Promise<void> {
    const byName = new Map(tenants.map(tenant => [tenant.databaseName, tenant]));
    for (const { name, written, isShared } of await this.#query(server, tenants, [...byName.keys()])) {
      const { guid } = byName.get(String(name)) as TenantRecord;
      const isNew = this.#written.get(guid) !== written;
      if (isNew || isShared) this.#wake(guid, isNew ? String(written) : undefined);
      this.#written.set(guid, String(written));
    }
  }

  async #query(server: string, tenants: readonly TenantRecord[], names: string[]): Promise<RowValues[]> {
    const { control, controlUrl, databases } = this.#options;
    const statement = { name: 'change_watch', text: pollText, values: [names] };
    if (server === serverAddress(controlUrl)) return queryStatement(control, statement);
    const [first] = tenants;
    const driver = databases.lastUsedOn(server) ?? (first && databases.open(first));
    return (await driver?.reads.read(statement)) ?? [];
  }
}
