import { randomInt } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { Announce } from '../../control/announcer.ts';
import type { ChangeFeed } from '../../control/change-feed.ts';
import { changeTopics } from '../../control/change-topics.ts';
import { type ControlDatabase, queryControl } from '../../control/database.ts';
import type { Directory } from '../../control/directory.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { serverAddress } from '../../lib/postgres/server-address.ts';
import type { Statement } from '../../lib/postgres/statement.ts';
import { maxEntries } from '../../lib/runtime/lru-bounds.ts';
import type { TenantDatabases } from '../../tenancy/connections/tenant-databases.ts';
import { type WriteCounters, writeCounters } from './write-counters.ts';

interface ChangeWatchOptions {
  control: ControlDatabase;
  feed: ChangeFeed;
  announce: Announce;
  databases: Pick<TenantDatabases, 'open' | 'lastUsedOn'>;
  directory: Pick<Directory, 'tenant'>;
  processId: string;
  log: Logger;
}

/** Interval of the polls of the servers. */
const pollMs = 1_000;
/**
 * The interval at which a process names the tenants that it follows, and the time for which the
 * others remember them.
 */
const interestEveryMs = 20_000;
const interestForMs = 60_000;

/**
 * One query for all tenants: after an outage, their requests would wait behind a query for
 * each.
 */
const followedText = `
  select guid, database_name as name, case when not on_control_server then address end as address,
         coalesce(w.is_active, false) as "hasWebhooks", ${writeCounters}
    from tenants t join servers s on s.id = server_id left join webhook_tenants w on w.tenant_id = t.id
    left join pg_database on on_control_server and datname = database_name
   where (guid = any ($1) or w.is_active) and t.status = 'active'`;
const pollText = `select datname::text as name, ${writeCounters} from pg_database where datname = any ($1)`;

interface FollowedTenant extends WriteCounters {
  readonly guid: string;
  readonly name: string;
  /**
   * The address of the tenant's server; null if that is the server of the control database,
   * whose counters were read, too.
   */
  readonly address: string | null;
  readonly hasWebhooks: boolean;
}

/**
 * Called when a tenant with webhooks may have new changes.
 * @param written the counters that a poll of the server has read, if a poll is the cause: the
 *   same text in every process
 */
type Serve = (guid: string, written?: string) => void;

/**
 * Wakes the followers of a tenant when there may be new changes: this process has committed
 * one; another process has announced one; or a poll of the server shows that somebody has
 * written. It holds no connection to a tenant's database: a server beside that of the control
 * database is polled on the connection of one tenant.
 *
 * A process announces its commits only while another one follows the tenant, so that they cost
 * nothing otherwise. The change feed of the control database carries both: `?<process>/<guid>`
 * names a follower, `<guid>` a change.
 */
export class ChangeWatch {
  readonly #options: ChangeWatchOptions;
  readonly #followers = new Map<string, Set<() => void>>();
  #serve: Serve = () => {};
  /** The tenants with webhooks; undefined until they were read. */
  #served: ReadonlySet<string> | undefined;
  /** The tenants that another process follows. */
  readonly #interest = new LRUCache<string, true>({ ...maxEntries(10_000), ttl: interestForMs });
  readonly #written = new Map<string, string>();
  readonly #timers = [
    setInterval(() => this.#begin('', () => this.#poll()), pollMs).unref(),
    setInterval(() => this.#announceInterest(...this.#followers.keys()), interestEveryMs).unref(),
  ];
  /** The polls that have not ended, by server: one that does not respond delays no other. */
  readonly #polling = new Map<string, Promise<void>>();

  constructor(options: ChangeWatchOptions) {
    this.#options = options;
    options.feed.subscribe(changeTopics.changes, key => {
      if (key.startsWith('?')) {
        this.#remember(key);
      } else {
        for (const guid of key === '*' ? this.#followers.keys() : [key]) this.#wakeFollowers(guid);
      }
    });
  }

  /**
   * Calls `wake` when the tenant may have new changes, perhaps too often.
   * @returns a function that ends the calls
   */
  subscribe(guid: string, wake: () => void): () => void {
    const followers = this.#followers.get(guid) ?? new Set();
    this.#followers.set(guid, followers.add(wake));
    this.#announceInterest(guid);
    return () => {
      followers.delete(wake);
      if (followers.size === 0 && this.#followers.get(guid) === followers) {
        this.#followers.delete(guid);
      }
    };
  }

  /**
   * Sets the function that serves the webhooks of a tenant, and begins to poll. The process
   * that commits a change serves its webhooks, and a poll finds the changes that are left, so
   * no process announces a change for webhooks.
   */
  onServed(serve: Serve): void {
    this.#serve = serve;
    this.#begin('', () => this.#poll());
  }

  /** Notes that this process has committed a change of the tenant, or may have. */
  notify(guid: string): void {
    this.#wake(guid);
    if (this.#interest.has(guid)) this.#announce(guid);
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    while (this.#polling.size > 0) await Promise.all(this.#polling.values());
  }

  #wake(guid: string, written?: string): void {
    this.#wakeFollowers(guid);
    if (this.#served?.has(guid)) this.#serve(guid, written);
  }

  #wakeFollowers(guid: string): void {
    for (const wake of this.#followers.get(guid) ?? []) wake();
  }

  /**
   * Remembers that another process follows a tenant. Announces the tenant to a new follower,
   * because this process may have committed changes before.
   */
  #remember(key: string): void {
    const [processId, guid = ''] = key.slice(1).split('/');
    if (processId === this.#options.processId) return;
    if (!this.#interest.has(guid)) this.#announce(guid);
    this.#interest.set(guid, true);
  }

  #announceInterest(...guids: string[]): void {
    for (const guid of guids) this.#announce(`?${this.#options.processId}/${guid}`);
  }

  #announce(key: string): void {
    void this.#options.announce(changeTopics.changes, key);
  }

  #begin(server: string, poll: () => Promise<void>): void {
    if (this.#polling.has(server)) return;
    const { log } = this.#options;
    const polling = poll()
      .catch(error =>
        log.debug(
          { event: 'change_poll_failed', err: describeError(error) },
          'could not poll a server',
        ),
      )
      .finally(() => this.#polling.delete(server));
    this.#polling.set(server, polling);
  }

  async #poll(): Promise<void> {
    const values = [[...this.#followers.keys()]];
    const tenants = await queryControl<FollowedTenant>(
      this.#options.control,
      'followed_tenants',
      followedText,
      values,
    );

    const before = this.#served;
    this.#served = new Set(tenants.flatMap(({ guid, hasWebhooks }) => (hasWebhooks ? guid : [])));
    // This process may have changed a tenant before it learned that the tenant has webhooks.
    const added = before ? [...this.#served].filter(guid => !before.has(guid)) : [];
    for (const guid of added) this.#serve(guid);

    for (const [address, ofServer] of Map.groupBy(tenants, ({ address }) => address)) {
      if (address === null) {
        for (const tenant of ofServer) this.#compare(tenant.guid, tenant);
      } else {
        const server = serverAddress(address);
        this.#begin(server, () => this.#pollServer(server, ofServer));
      }
    }
  }

  async #pollServer(server: string, tenants: readonly FollowedTenant[]): Promise<void> {
    const { databases, directory } = this.#options;
    const guids = new Map(tenants.map(({ name, guid }) => [name, guid]));
    let driver = databases.lastUsedOn(server);

    if (!driver) {
      // A random tenant each time: one that cannot be read, such as for its password, does not
      // keep the others from being polled.
      const tenant = await directory.tenant(tenants[randomInt(tenants.length)]!.guid);
      if (!tenant) return;
      driver = databases.open(tenant);
    }

    const select: Statement<WriteCounters & { readonly name: string }> = {
      name: 'change_watch',
      text: pollText,
      values: [[...guids.keys()]],
    };
    for (const row of await driver.reads.read(select)) {
      this.#compare(guids.get(row.name)!, row);
    }
  }

  #compare(guid: string, { written, isShared }: WriteCounters): void {
    const isNew = this.#written.get(guid) !== written;
    this.#written.set(guid, written);
    if (isNew || isShared) this.#wake(guid, isNew ? written : undefined);
  }
}
