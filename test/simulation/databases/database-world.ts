import type { Random } from '../random.ts';
import type { Scheduler } from '../scheduler.ts';

/** A session of the tenant's login, which one process uses. */
export interface SimulatedSession {
  isAlive: boolean;
}

/** A server of tenant databases. */
export interface DatabaseServer {
  readonly name: string;
  /** True while the server does not answer. */
  isAway: boolean;
}

/** The state of a database in the control database. */
export type DatabaseState = 'reserved' | 'filled' | 'current' | 'kept' | 'condemned' | 'gone';

/** A database that the tenant has, had, or may get. */
export class TenantDatabase {
  readonly name: string;
  readonly server: DatabaseServer;
  state: DatabaseState = 'reserved';
  exists = false;
  /** The role of the tenant in it; a database that is lost leaves it. */
  hasRole = false;
  /** True while the stamp of the database names the tenant and the tenant's role may log in. */
  isOpen = false;
  /** True while the version of the database is older than that of the build. */
  isOutdated = false;
  /**
   * True from the time when its server has lost it until a run opens it, which may be there
   * again then.
   */
  wasLost = false;
  /**
   * True from its adoption until a run opens it: a run that was killed may have closed it
   * before.
   */
  isAdopted = false;
  /** The database that took its place, as it has recorded. */
  replacedBy: TenantDatabase | undefined;
  /** The greatest epoch that has claimed it. */
  claimedBy = 0;
  /** The epoch of the last run that has written to it. */
  changedBy = 0;
  rows = new Set<number>();
  /** The last number that its sequence has given. */
  lastNumber = 0;
  /** The rows when the tenant gets it, unless those are a copy of what the tenant has. */
  expected: ReadonlySet<number>;
  readonly sessions = new Set<SimulatedSession>();

  constructor(name: string, server: DatabaseServer, expected: ReadonlySet<number>) {
    this.name = name;
    this.server = server;
    this.expected = expected;
  }

  /** True if the database may serve the tenant. */
  get isComplete(): boolean {
    return this.state === 'filled' || this.state === 'kept';
  }

  /** Opens a session; undefined when the database refuses it. */
  connect(): SimulatedSession | undefined {
    if (!this.exists || !this.isOpen || this.server.isAway) return undefined;
    const session = { isAlive: true };
    this.sessions.add(session);
    return session;
  }

  /**
   * Changes what the control database says of it.
   * @throws unless that is one of `from`
   */
  change(from: readonly DatabaseState[], to: DatabaseState): void {
    if (!from.includes(this.state)) throw new Error(`${this.name} is ${this.state}`);
    this.state = to;
  }

  /** @throws while its server does not answer */
  reach(): void {
    if (this.server.isAway) throw new Error(`${this.server.name} is away`);
  }

  /** @throws while its server does not answer */
  isLost(): boolean {
    this.reach();
    return !this.exists;
  }

  /**
   * @throws when a later run has claimed the database, or it does not exist, or its server does
   *   not answer
   */
  guard(epoch: number): void {
    this.reach();
    if (!this.exists) throw new Error(`${this.name} does not exist`);
    if (this.claimedBy > epoch) throw new Error(`${this.name} is claimed by a later run`);
  }

  /**
   * Shuts earlier runs out.
   * @throws as `guard`
   */
  claim(epoch: number): void {
    this.guard(epoch);
    this.claimedBy = epoch;
  }

  /**
   * Lets logins of the tenant in, or does not.
   * @throws as `guard`
   */
  open(epoch: number, isOpen: boolean): void {
    this.guard(epoch);
    if (!this.hasRole) throw new Error(`the role of ${this.name} does not exist`);
    this.isOpen = isOpen;
    if (isOpen) this.wasLost = this.isAdopted = false;
  }

  endSessions(): void {
    for (const session of this.sessions) session.isAlive = false;
    this.sessions.clear();
  }

  /** Makes the database, closed. */
  create(): void {
    this.reach();
    this.exists = this.hasRole = true;
  }

  /** The server has lost the database; its role is still there. */
  lose(): void {
    this.exists = false;
    this.wasLost = true;
    this.endSessions();
  }

  /** Drops the database with its role. */
  drop(): void {
    this.reach();
    this.exists = this.hasRole = this.isOpen = false;
    this.endSessions();
  }
}

const nowhere = new TenantDatabase('nowhere', { name: 'no server', isAway: false }, new Set());

/** The simulated control database, with all databases of the tenant, its fence and its lock. */
export class DatabasesControl {
  /** The database of the tenant. */
  current = nowhere;
  /** The database that the tenant has, while the control database has lost that. */
  newer: TenantDatabase | undefined;
  /** The last exchange, which can be lost. */
  #last: { readonly former: TenantDatabase; readonly target: TenantDatabase } | undefined;
  fence: 'none' | 'announced' | 'closed' = 'none';
  /** Differs for each fence. */
  fenceId = 0;
  /** The processes that have confirmed the fence, as it is now. */
  readonly acknowledged = new Set<string>();
  /** True while the control database cannot be reached. */
  isAway = false;
  /** Called when the fence or the database of the tenant has changed. */
  onChange = (): void => {};
  readonly databases: TenantDatabase[] = [];
  /** The last number that is known of the tenant when its database is lost. */
  knownNumber = 0;
  /** False while the tenant is being provisioned: nobody is served. */
  isActive = false;
  /** The run that holds the lock of the tenant. */
  lockedBy: object | undefined;

  /** Returns whether all processes that are heard have confirmed the fence. */
  isConfirmedBy(processes: readonly { name: string; isHeard: boolean }[]): boolean {
    return processes.every(({ name, isHeard }) => !isHeard || this.acknowledged.has(name));
  }

  /** Announces, closes or lifts the fence. */
  setFence(fence: typeof this.fence): void {
    this.fence = fence;
    if (fence === 'announced') this.fenceId++;
    this.acknowledged.clear();
    this.onChange();
  }

  reserve(server: DatabaseServer, expected: ReadonlySet<number>): TenantDatabase {
    const database = new TenantDatabase(`database ${this.databases.length}`, server, expected);
    this.databases.push(database);
    return database;
  }

  /**
   * Condemns what an unfinished run has left; of a new tenant also what it has given to the
   * tenant.
   */
  condemnLeftovers(): void {
    for (const database of this.databases) {
      if (database.state === 'reserved') database.state = 'condemned';
    }
    if (this.isActive || this.current === nowhere) return;
    this.current.state = 'condemned';
    this.current = nowhere;
  }

  /** The tenant gets a database; the one that it had is kept or condemned. */
  exchange(target: TenantDatabase, former: 'kept' | 'condemned'): void {
    if (this.current !== nowhere) {
      this.current.state = former;
      this.current.expected = new Set(this.current.rows);
      this.#last = { former: this.current, target };
    }
    this.current = target;
    this.newer = undefined;
    target.state = 'current';
    this.onChange();
  }

  /**
   * A standby takes its place, which has not received the last exchange.
   * @returns false if there is none that the former database has recorded
   */
  loseExchange(fence: typeof this.fence): boolean {
    const { former, target } = this.#last ?? {};
    this.#last = undefined;
    const isRecorded = former?.state === 'kept' && former.replacedBy === target;
    if (!target?.exists || !isRecorded || this.current !== target || !this.isActive) return false;

    former.state = 'current';
    target.state = 'kept';
    this.current = former;
    this.newer = target;
    this.setFence(fence);
    return true;
  }
}

/** The state that the simulated runs and processes share. */
export interface DatabaseWorld {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly control: DatabasesControl;
  readonly processes: readonly { name: string; isHeard: boolean }[];
  /** True while nothing goes wrong. */
  readonly isCalm: boolean;
  epochs: number;
  writes: number;
  /** Requests that failed. */
  failed: number;
  trace(line: () => string): void;
  /**
   * The sequence of a database gives a number.
   * @throws {Violation} when the tenant has got it before
   */
  giveNumber(database: TenantDatabase): void;
  /** A client knows now that its write is done. */
  acknowledge(id: number, database: TenantDatabase): void;
  /** Starts processes of the service, when a new tenant is served. */
  startServing(): void;
  /** @throws {Violation} when an invariant is broken now */
  check(): void;
}
