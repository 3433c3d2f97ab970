import type { EntityManager, MikroORM } from '@mikro-orm/postgresql';
import type { TenantRecord } from '../control/directory.ts';
import { type Problem, problem } from '../errors.ts';
import { TenantDriver } from './tenant-driver.ts';

/** The right to use a tenant's database until it is released. */
export interface Lease {
  /** A new entity manager on that database and no other. */
  entityManager(): EntityManager;
  /** Gives the right back; safe to call twice. */
  release(): void;
}

interface OpenDatabase {
  readonly key: string;
  readonly driver: TenantDriver;
  leases: number;
  /** Takes no new leases, because others wait for its place; closes with the last lease. */
  retiring: boolean;
}

interface Waiter {
  readonly tenant: TenantRecord;
  readonly resolve: (lease: Lease) => void;
  readonly reject: (problem: Problem) => void;
  readonly timer: NodeJS.Timeout;
}

interface TenantDatabasesOptions {
  /** Metadata of everything in a tenant database; its own database does not exist, so a mistake reaches nothing. */
  orm: MikroORM;
  /** The last migration of this build: a database at another version is not served. */
  head: string;
  maxOpen: number;
  connectionsEach: number;
  acquireTimeoutMs: number;
}

const maxWaiting = 2_000; // beyond it, waiting only makes everybody late

/**
 * The tenant databases that are open, at most `maxOpen`, each with at most `connectionsEach` connections: the product
 * is what this process may take of a PostgreSQL server. Who needs one that is not open waits in line; the least
 * recently used idle one is closed to make room, or, when all are busy, the one open the longest takes no new leases
 * until it is idle. So nobody waits for ever, however busy the others are.
 */
export class TenantDatabases {
  readonly #options: TenantDatabasesOptions;
  /** Least recently used first. */
  readonly #open = new Map<string, OpenDatabase>();
  readonly #waiting = new Set<Waiter>();
  readonly #closing = new Set<Promise<void>>();
  #shut = false;

  constructor(options: TenantDatabasesOptions) {
    this.#options = options;
  }

  /**
   * Leases the tenant's database. Release it in `finally`.
   * @throws {Problem} `tenant_inactive`, `migration_pending`, or `overloaded` when no place came free in time
   */
  async acquire(tenant: TenantRecord): Promise<Lease> {
    if (tenant.status !== 'active') throw problem('tenant_inactive');
    if (tenant.schemaVersion !== this.#options.head) throw problem('migration_pending');
    if (this.#shut) throw problem('unavailable');
    // Synchronous from the look-up to the place being taken: an await between would let others overshoot the limit.
    return this.#lease(tenant) ?? (await this.#wait(tenant));
  }

  /** How many databases are open or still closing, and how many requests wait for one. */
  get usage(): { open: number; waiting: number } {
    return { open: this.#open.size + this.#closing.size, waiting: this.#waiting.size };
  }

  /** Refuses new leases, also to those in line, and closes everything, each database when its last lease is released. */
  async close(): Promise<void> {
    this.#shut = true;
    for (const waiter of this.#waiting) {
      clearTimeout(waiter.timer);
      waiter.reject(problem('unavailable'));
    }
    this.#waiting.clear();
    for (const database of this.#open.values()) {
      if (database.leases === 0) this.#close(database);
      else database.retiring = true;
    }
    while (this.#open.size + this.#closing.size > 0) {
      await Promise.all(this.#closing);
      if (this.#open.size > 0) await new Promise(resolve => setTimeout(resolve, 20));
    }
  }

  #lease(tenant: TenantRecord): Lease | undefined {
    const key = keyOf(tenant);
    let database = this.#open.get(key);
    if (database?.retiring) return undefined;
    if (!database) {
      if (this.#open.size + this.#closing.size >= this.#options.maxOpen) return undefined;
      database = { key, driver: this.#driver(tenant), leases: 0, retiring: false };
    }
    const leased = database;
    leased.leases++;
    this.#open.delete(key);
    this.#open.set(key, leased);
    let released = false;
    return {
      entityManager: () => {
        if (released) throw new Error('the lease on this tenant database has been released');
        return leased.driver.entityManager();
      },
      release: () => {
        if (released) return;
        released = true;
        leased.leases--;
        if (leased.retiring && leased.leases === 0) this.#close(leased);
        else if (this.#waiting.size > 0) this.#serve();
      },
    };
  }

  #driver(tenant: TenantRecord): TenantDriver {
    const { orm, head, connectionsEach, acquireTimeoutMs } = this.#options;
    return new TenantDriver(orm, {
      url: tenant.databaseUrl,
      expected: { guid: tenant.guid, schemaVersion: head },
      connections: connectionsEach,
      connectionTimeoutMs: acquireTimeoutMs,
    });
  }

  async #wait(tenant: TenantRecord): Promise<Lease> {
    if (this.#waiting.size >= maxWaiting) throw problem('overloaded');
    return new Promise<Lease>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(waiter);
        reject(
          problem('overloaded', { cause: new Error('no place among the open tenant databases came free in time') }),
        );
        this.#serve(); // what was to make room for this one need not
      }, this.#options.acquireTimeoutMs);
      const waiter: Waiter = { tenant, resolve, reject, timer };
      this.#waiting.add(waiter);
      this.#serve();
    });
  }

  /** Gives leases to those in line, first come first served, and makes room for the rest. */
  #serve(): void {
    const missing = new Set<string>();
    for (const waiter of this.#waiting) {
      const lease = this.#lease(waiter.tenant);
      if (lease) {
        clearTimeout(waiter.timer);
        this.#waiting.delete(waiter);
        waiter.resolve(lease);
      } else if (!this.#open.has(keyOf(waiter.tenant))) {
        missing.add(waiter.tenant.guid);
      }
    }
    if (this.#makeRoom(missing.size)) this.#serve();
  }

  /**
   * Sees to it that as many places come free as tenants wait for one, and no more: idle databases close; only when
   * there are too few of them, busy ones retire.
   * @returns whether a database that was to retire may stay, so that those who wait for it can have it
   */
  #makeRoom(wanted: number): boolean {
    let coming = this.#closing.size;
    for (const database of [...this.#open.values()]) {
      if (coming >= wanted) break;
      if (database.leases > 0) continue;
      this.#close(database);
      coming++;
    }
    let stays = false;
    for (const database of this.#open.values()) {
      const retires = this.#shut || coming < wanted;
      if (retires) coming++;
      stays ||= database.retiring && !retires;
      database.retiring = retires;
    }
    return stays;
  }

  #close(database: OpenDatabase): void {
    this.#open.delete(database.key);
    const closing: Promise<void> = database.driver
      .close()
      .catch(() => {})
      .then(() => {
        this.#closing.delete(closing);
        this.#serve();
      });
    this.#closing.add(closing);
  }
}

/** With its address and password in the key, a changed pointer or password opens anew and verifies anew. */
function keyOf(tenant: TenantRecord): string {
  return `${tenant.guid} ${tenant.databaseUrl}`;
}
