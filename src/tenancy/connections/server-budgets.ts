import type { Beat } from '../../control/beat.ts';
import type { TenantRecord } from '../../control/records.ts';
import { serverAddress } from '../../lib/postgres/server-address.ts';
import { type BudgetUsage, ConnectionBudget } from './connection-budget.ts';
import { lostShare, minimumShare, type Share, shareOf } from './share.ts';

export interface ServerBudgetsOptions {
  /** The control database: its connections count against the budget of its server. */
  controlUrl: string;
  /** The server that the control database is on (`readServerIdentity`). */
  controlIdentity?: string | undefined;
  /** Connections to the control database that this process wants, with the change feed. */
  controlConnections: number;
  /**
   * Maximum connections to one PostgreSQL server, over all processes, tenants and the control
   * database.
   */
  connectionBudget: number;
  /**
   * Maximum connections of one tenant; a third of that while other tenants use the server too.
   */
  tenantConnections: number;
  /** Maximum wait for a connection, and maximum time to open one, in milliseconds. */
  acquireTimeoutMs: number;
  /** Says how many processes share the budget. Without it, this process may use all of it. */
  beat?: Pick<Beat, 'process' | 'fleet' | 'isConfirmed' | 'isSettled'>;
}

/** The facts that identify the server of a tenant. */
type ServerOf = Pick<TenantRecord, 'serverIdentity' | 'databaseUrl'>;

/** The connection budget of each server, and the share of this process in it. */
export class ServerBudgets {
  readonly #options: ServerBudgetsOptions;
  readonly #controlServer: string;
  readonly #budgets = new Map<string, ConnectionBudget>();
  /**
   * The address that identifies the budget of a server, by the identity of the server: the
   * first address that was used.
   */
  readonly #addresses = new Map<string, string>();

  constructor(options: ServerBudgetsOptions) {
    this.#options = options;
    this.#controlServer = serverAddress(options.controlUrl);
    if (options.controlIdentity !== undefined) {
      this.#addresses.set(options.controlIdentity, this.#controlServer);
    }
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

  /**
   * Maximum connections of the pool of the control database at this moment, without the change
   * feed.
   */
  get maxControl(): number {
    return this.#shareOf(this.#controlServer).control - 1;
  }

  /** Returns the budget of a server. */
  of(tenant: ServerOf): ConnectionBudget {
    const server = this.#addressOf(tenant);
    return this.#budgets.get(server) ?? this.#create(server);
  }

  /**
   * Takes the share that the last beat gives. Closes idle connections above it; those in use
   * after their request.
   */
  update(): void {
    for (const [server, budget] of this.#budgets) budget.setMax(this.#shareOf(server).tenants);
  }

  /**
   * Closes an idle connection of a tenant on the server of the control database, so that a
   * connection to the control database can be opened.
   */
  makeRoomForControl(): void {
    this.#budgets.get(this.#controlServer)?.evict();
  }

  /** Closes every connection, those in use when they are released. */
  async close(): Promise<void> {
    await Promise.all([...this.#budgets.values()].map(budget => budget.close()));
  }

  #addressOf({ serverIdentity, databaseUrl }: ServerOf): string {
    const address = serverAddress(databaseUrl);
    if (serverIdentity === undefined) return address;
    const known = this.#addresses.get(serverIdentity);
    if (known === undefined) this.#addresses.set(serverIdentity, address);
    return known ?? address;
  }

  #create(server: string): ConnectionBudget {
    const { beat, connectionBudget, tenantConnections, acquireTimeoutMs } = this.#options;
    const maxPerTenant = Math.min(tenantConnections, connectionBudget);
    const budget = new ConnectionBudget({
      max: this.#shareOf(server).tenants,
      maxPerTenant,
      maxPerTenantShared: Math.ceil(maxPerTenant / 3),
      maxWaitMs: acquireTimeoutMs,
      // A process that was paused may get a request before it notices how much time has passed.
      ...(beat && { mayOpen: () => beat.isConfirmed }),
    });

    this.#budgets.set(server, budget);
    return budget;
  }

  #shareOf(server: string): Share {
    const { beat, connectionBudget, controlConnections } = this.#options;
    const hasControl = server === this.#controlServer;

    if (!beat) {
      const control = hasControl ? controlConnections : 0;
      return { control, tenants: connectionBudget - control };
    }
    if (!beat.isConfirmed) return lostShare(hasControl);
    if (!beat.isSettled) return minimumShare(hasControl);

    return shareOf({ ...beat.fleet, hasControl, maxControl: controlConnections });
  }
}
