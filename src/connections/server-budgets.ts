import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { findStatement, type GrantStore, type ProcessConnection } from '../control/connection-grants.ts';
import type { EntryLock } from '../control/entry-lock.ts';
import type { TenantRecord } from '../control/records.ts';
import { serverAddress } from '../postgres/server-address.ts';
import { type BudgetUsage, ConnectionBudget } from './connection-budget.ts';
import { ConnectionEnder } from './connection-ender.ts';
import { GrantLoop } from './grant-loop.ts';
import type { TenantDriver } from './tenant-driver.ts';

export interface ServerBudgetsOptions {
  /** The control database: its connections count against the budget of its server. */
  controlUrl: string;
  /** Which server the control database is on (`readServerIdentity`). */
  controlIdentity?: string | undefined;
  /** Connections to the control database that this process wants. */
  controlConnections: number;
  /** Maximum connections to one PostgreSQL server, over all tenants and the control database. */
  connectionBudget: number;
  /** Maximum connections of one tenant; a third of that while other tenants use the server too. */
  tenantConnections: number;
  /** Maximum wait for a connection, and maximum time to open one, in milliseconds. */
  acquireTimeoutMs: number;
  /** How the processes of an installation share the connections. Without it, this process may use all of them. */
  sharing?: Sharing;
}

interface Sharing {
  store: GrantStore;
  /** The lock under which a process has a connection without a grant. */
  entry?: EntryLock | undefined;
  log: Logger;
  /** Finds tenants by the names of their databases. */
  findTenants: (databases: readonly string[]) => Promise<TenantRecord[]>;
}

/** The open databases of tenants. */
interface OpenDatabases {
  open(tenant: TenantRecord): TenantDriver;
  /** Returns the most recently used database on a server; undefined when none is open there. */
  lastUsedOn(server: string): TenantDriver | undefined;
}

/** Leads to a server. */
type ServerOf = Pick<TenantRecord, 'serverIdentity' | 'databaseUrl'>;

/** Maximum delay of a stop by other holders of the entry lock, and by a control database that does not respond. */
const maxLeaveMs = 1_000;

/** The connection budget of each server, and the grant of this process in it. */
export class ServerBudgets {
  readonly #options: ServerBudgetsOptions;
  readonly #databases: OpenDatabases;
  readonly #budgets = new Map<string, ConnectionBudget>();
  readonly #loops = new Map<string, GrantLoop>();
  /** By the identity of a server, the address that identifies its budget: the first one that was used. */
  readonly #addresses = new Map<string, string>();

  constructor(options: ServerBudgetsOptions, databases: OpenDatabases) {
    this.#options = options;
    this.#databases = databases;
    const { controlIdentity, controlUrl } = options;
    const address = serverAddress(controlUrl);
    if (controlIdentity !== undefined) this.#addresses.set(controlIdentity, address);
    // The first request then finds the connections granted.
    if (options.sharing) this.#create(address, controlIdentity);
  }

  /** The connection budget of each server, by host and port. */
  get all(): ReadonlyMap<string, ConnectionBudget> {
    return this.#budgets;
  }

  /** The sum over all servers. */
  get usage(): BudgetUsage {
    const total = { open: 0, inUse: 0, waiting: 0 };
    for (const { usage } of this.#budgets.values()) {
      total.open += usage.open;
      total.inUse += usage.inUse;
      total.waiting += usage.waiting;
    }
    return total;
  }

  /** Maximum connections to the control database at this moment. */
  get maxControl(): number {
    const { controlUrl, controlConnections } = this.#options;
    return this.#loops.get(serverAddress(controlUrl))?.maxControl ?? controlConnections;
  }

  /** Returns the budget of a server; begins to share it with the other processes on first use. */
  of(tenant: ServerOf): ConnectionBudget {
    const server = this.#addressOf(tenant);
    return this.#budgets.get(server) ?? this.#create(server, tenant.serverIdentity);
  }

  /** Closes every connection, those in use when they are released, and returns all grants. */
  async close(): Promise<void> {
    await Promise.all([...this.#budgets.values()].map(budget => budget.close()));
    await Promise.all([...this.#loops.values()].map(loop => loop.stop()));
    // If that fails, the other processes find after some seconds that this one is gone.
    const { store, entry } = this.#options.sharing ?? {};
    if (entry && !(await entry.acquire(maxLeaveMs))) return;
    const left = store?.leave().catch(() => {});
    await Promise.race([left, delay(maxLeaveMs, undefined, { ref: false })]);
  }

  #addressOf({ serverIdentity, databaseUrl }: ServerOf): string {
    const address = serverAddress(databaseUrl);
    if (serverIdentity === undefined) return address;
    const known = this.#addresses.get(serverIdentity);
    if (known === undefined) this.#addresses.set(serverIdentity, address);
    return known ?? address;
  }

  #create(server: string, identity: string | undefined): ConnectionBudget {
    const { controlUrl, controlConnections, connectionBudget, tenantConnections, acquireTimeoutMs } = this.#options;
    const isControlServer = server === serverAddress(controlUrl);
    const base = isControlServer ? controlConnections : 0;
    const max = connectionBudget - base;
    const maxPerTenant = Math.min(tenantConnections, max);
    const loop = this.#createLoop(server, identity, isControlServer, base);
    const budget = new ConnectionBudget({
      max: loop ? 0 : max,
      maxPerTenant,
      maxPerTenantShared: Math.ceil(maxPerTenant / 3),
      maxWaitMs: acquireTimeoutMs,
      ...(loop && { mayOpen: () => loop.mayOpen() }),
    });
    this.#budgets.set(server, budget);
    if (loop) {
      this.#loops.set(server, loop);
      loop.start(budget);
    }
    return budget;
  }

  #createLoop(
    server: string,
    identity: string | undefined,
    isControlServer: boolean,
    base: number,
  ): GrantLoop | undefined {
    const { sharing, controlIdentity, connectionBudget } = this.#options;
    if (!sharing) return undefined;
    const { store, log, findTenants } = sharing;
    const find = isControlServer ? store.findConnections : this.#finderOn(server);
    const ender = new ConnectionEnder({ findTenants, open: tenant => this.#databases.open(tenant), log });
    return new GrantLoop({
      store,
      log,
      server: (isControlServer ? controlIdentity : identity) ?? server,
      max: connectionBudget,
      base,
      findConnections: async (processes, end) => ender.endOthers(await find(processes, end), end),
    });
  }

  /** Asks a server on a connection of the tenant used last, which is within the grant. */
  #finderOn(server: string): GrantStore['findConnections'] {
    return async (processes, end) => {
      const driver = this.#databases.lastUsedOn(server);
      if (!driver) throw new Error('no tenant of the server is open');
      return (await driver.reads.read(findStatement(processes, end))) as unknown as ProcessConnection[];
    };
  }
}
