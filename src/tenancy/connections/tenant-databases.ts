import type { MikroORM } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import type { TenantRecord } from '../../control/records.ts';
import { canServe } from '../../control/schema-version.ts';
import { problem } from '../../lib/problems.ts';
import { Turns } from './large-reads.ts';
import { ServerBudgets, type ServerBudgetsOptions } from './server-budgets.ts';
import { TenantDriver } from './tenant-driver.ts';
import type { FenceView } from './tenant-fences.ts';
import type { TenantPool } from './tenant-pool.ts';

interface TenantDatabasesOptions extends ServerBudgetsOptions {
  /**
   * The MikroORM with the metadata of tenant databases. Its own database does not exist, so a
   * use by mistake reaches no data.
   */
  orm: MikroORM;
  /**
   * The last tenant migration of this build. A tenant whose schema the build cannot serve is
   * refused.
   */
  head: string;
  /** Called with the duration of each use of a connection of a tenant, in milliseconds. */
  onUsed?: (guid: string, ms: number) => void;
}

/**
 * Maximum open databases. Each takes about 14 KB, and nothing else while it has no connection.
 */
const maxOpenDatabases = 10_000;

/** The open tenant databases. */
export class TenantDatabases {
  /** The turns of the large reads of the process. */
  readonly largeReads = new Turns();
  readonly #options: TenantDatabasesOptions;
  /** The connection budget of each server. */
  readonly budgets: ServerBudgets;
  readonly #open = new LRUCache<string, TenantDriver>({
    max: maxOpenDatabases,
    dispose: driver => void driver.close(),
  });
  #fences: FenceView | undefined;
  #onCommit: (guid: string) => void = () => {};
  #isClosed = false;

  constructor(options: TenantDatabasesOptions) {
    this.#options = options;
    this.budgets = new ServerBudgets(options);
  }

  /**
   * Returns the tenant's database; connects on first use.
   * @throws {Problem} `tenant_inactive`, `migration_pending`, or `unavailable` after `close`
   */
  open(tenant: TenantRecord): TenantDriver {
    if (tenant.status !== 'active') throw problem('tenant_inactive');
    if (!canServe(this.#options.head, tenant)) throw problem('migration_pending');
    if (this.#isClosed) throw problem('unavailable');

    const key = keyOf(tenant);
    let driver = this.#open.get(key);
    if (!driver) {
      driver = this.#createDriver(tenant);
      this.#open.set(key, driver);
    }

    return driver;
  }

  /**
   * Opens the database of a tenant that this process has not served yet, with a connection, ahead
   * of its first use. Does nothing if the database is open, or cannot be opened.
   */
  openAhead(tenant: TenantRecord): void {
    const isServed = tenant.status === 'active' && canServe(this.#options.head, tenant);
    if (!isServed || this.#isClosed || this.#open.has(keyOf(tenant))) return;
    this.open(tenant).pool.openAhead();
  }

  /** From now on, requests of a fenced tenant wait for a connection. */
  useFences(fences: FenceView): void {
    this.#fences = fences;
  }

  /**
   * Sets the function that is called with the guid of a tenant whenever a change of it has
   * ended: it was committed or refused, or its outcome is unknown.
   */
  onCommit(listener: (guid: string) => void): void {
    this.#onCommit = listener;
  }

  /** The pools of a tenant's open databases. */
  poolsOf(guid: string): TenantPool[] {
    const keys = [...this.#open.keys()].filter(key => key.startsWith(`${guid} `));
    return keys.flatMap(key => this.#open.peek(key)?.pool ?? []);
  }

  /**
   * Opens the pool of a tenant's database after its fence was lifted, and forgets the pools
   * that the tenant had before.
   */
  releasePools(tenant: TenantRecord): void {
    for (const key of [...this.#open.keys()].filter(each => each.startsWith(`${tenant.guid} `))) {
      if (key === keyOf(tenant)) this.#open.peek(key)?.pool.release();
      else this.#open.delete(key);
    }
  }

  /** Returns the most recently used database on a server; undefined when none is open there. */
  lastUsedOn(server: string): TenantDriver | undefined {
    const budget = this.budgets.all.get(server);
    for (const driver of this.#open.values()) if (driver.pool.budget === budget) return driver;
    return undefined;
  }

  /**
   * Opens no more databases, and closes every connection; a connection in use is closed when it
   * is released.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#open.clear();
    await this.budgets.close();
  }

  #createDriver(tenant: TenantRecord): TenantDriver {
    const { orm, head, acquireTimeoutMs, beat, onUsed } = this.#options;
    const fences = this.#fences;
    const driver = new TenantDriver(orm, {
      url: tenant.databaseUrl,
      expected: { guid: tenant.guid, head },
      budget: this.budgets.of(tenant),
      largeReads: this.largeReads,
      connectTimeoutMs: acquireTimeoutMs,
      processId: beat?.process.id,
      onUsed: onUsed && (ms => onUsed(tenant.guid, ms)),
      onCommit: () => this.#onCommit(tenant.guid),
      ...(fences && { relocate: deadline => fences.locate(tenant.guid, deadline) }),
    });

    if (fences?.isClosed(tenant.guid)) driver.pool.hold();
    return driver;
  }
}

/**
 * Returns the key of an open database. The URL is part of it: after a change of address or
 * password, new connections are opened and verified.
 */
function keyOf({ guid, databaseUrl }: TenantRecord): string {
  return `${guid} ${databaseUrl}`;
}
