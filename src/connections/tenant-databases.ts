import type { MikroORM } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import type { TenantRecord } from '../control/records.ts';
import { problem } from '../errors.ts';
import { serverAddress } from '../postgres/server-address.ts';
import { type BudgetUsage, ConnectionBudget } from './connection-budget.ts';
import { TenantDriver } from './tenant-driver.ts';

interface TenantDatabasesOptions {
  /** Metadata of everything in a tenant database; its own database does not exist, so a mistake reaches nothing. */
  orm: MikroORM;
  /** The last migration of this build: a database at another version is not served. */
  head: string;
  /** Address of the control database, whose connections count against the budget of its server. */
  controlUrl: string;
  controlConnections: number;
  /** Most connections to one PostgreSQL server, over all tenants and the control database. */
  connectionBudget: number;
  /** Most connections of one tenant; a third of them while others use the server as well. */
  tenantConnections: number;
  acquireTimeoutMs: number;
}

const maxOpenDatabases = 10_000; // about 14 KB each; without a connection an open database costs nothing else

/** The tenant databases that are open, and the connection budget of every server that they are on. */
export class TenantDatabases {
  readonly #options: TenantDatabasesOptions;
  readonly #budgets = new Map<string, ConnectionBudget>();
  readonly #open = new LRUCache<string, TenantDriver>({
    max: maxOpenDatabases,
    dispose: driver => void driver.close(),
  });
  #shut = false;

  constructor(options: TenantDatabasesOptions) {
    this.#options = options;
  }

  /**
   * The tenant's database. Nothing is asked of it yet.
   * @throws {Problem} `tenant_inactive`, `migration_pending`, or `unavailable` when the service stops
   */
  open(tenant: TenantRecord): TenantDriver {
    if (tenant.status !== 'active') throw problem('tenant_inactive');
    if (tenant.schemaVersion !== this.#options.head) throw problem('migration_pending');
    if (this.#shut) throw problem('unavailable');
    // With its address and password in the key, a changed pointer or password opens anew and verifies anew.
    const key = `${tenant.guid} ${tenant.databaseUrl}`;
    let driver = this.#open.get(key);
    if (!driver) {
      driver = this.#driver(tenant);
      this.#open.set(key, driver);
    }
    return driver;
  }

  /** The way to that database on a server which was opened last; undefined when there is none. */
  lastUsedOn(server: string): TenantDriver | undefined {
    const budget = this.#budgets.get(server);
    for (const driver of this.#open.values()) if (driver.pool.budget === budget) return driver;
    return undefined;
  }

  /** The connections to every server, by its host and port. */
  get budgets(): ReadonlyMap<string, ConnectionBudget> {
    return this.#budgets;
  }

  /** The connections to all servers together. */
  get usage(): BudgetUsage {
    const all = { open: 0, inUse: 0, waiting: 0 };
    for (const { usage } of this.#budgets.values()) {
      all.open += usage.open;
      all.inUse += usage.inUse;
      all.waiting += usage.waiting;
    }
    return all;
  }

  /** Opens nothing any more, and closes every connection, those in use when they are given back. */
  async close(): Promise<void> {
    this.#shut = true;
    this.#open.clear();
    await Promise.all([...this.#budgets.values()].map(budget => budget.close()));
  }

  #driver(tenant: TenantRecord): TenantDriver {
    const { orm, head, acquireTimeoutMs } = this.#options;
    return new TenantDriver(orm, {
      url: tenant.databaseUrl,
      expected: { guid: tenant.guid, schemaVersion: head },
      budget: this.#budgetOf(tenant.databaseUrl),
      connectTimeoutMs: acquireTimeoutMs,
    });
  }

  #budgetOf(url: string): ConnectionBudget {
    const { controlUrl, controlConnections, connectionBudget, tenantConnections, acquireTimeoutMs } = this.#options;
    const server = serverAddress(url);
    let budget = this.#budgets.get(server);
    if (!budget) {
      const max = connectionBudget - (server === serverAddress(controlUrl) ? controlConnections : 0);
      const maxEach = Math.min(tenantConnections, max);
      budget = new ConnectionBudget({
        max,
        maxPerTenant: maxEach,
        maxPerTenantShared: Math.ceil(maxEach / 3),
        waitMs: acquireTimeoutMs,
      });
      this.#budgets.set(server, budget);
    }
    return budget;
  }
}
