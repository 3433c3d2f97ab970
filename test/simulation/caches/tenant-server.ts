import type { DatabaseCounters } from '../../../src/postgres/change-counters.ts';
import type { CacheWorld } from './cache-world.ts';

interface Commit {
  readonly at: number;
  /** The process that committed, or a writer outside the service. */
  readonly by: string;
}

/** The commits of each resource of one tenant. A response contains their number, its version. */
export class TenantHistory {
  readonly guid: string;
  readonly #commits = new Map<string, Commit[]>();

  constructor(guid: string) {
    this.guid = guid;
  }

  add(resource: string, commit: Commit): void {
    const commits = this.#commits.get(resource);
    if (commits) commits.push(commit);
    else this.#commits.set(resource, [commit]);
  }

  commits(resource: string): readonly Commit[] {
    return this.#commits.get(resource) ?? [];
  }
}

/** A PostgreSQL server with tenant databases. */
export class TenantServer {
  readonly address: string;
  readonly databases: TenantDatabase[] = [];
  isUp = true;
  /** Grows with each start. */
  run = 1;
  readonly #world: CacheWorld;

  constructor(world: CacheWorld, address: string) {
    this.#world = world;
    this.address = address;
  }

  create(name: string, history: TenantHistory): TenantDatabase {
    const database = new TenantDatabase(this.#world, this, name, this.databases.length + 1, history);
    this.databases.push(database);
    return database;
  }

  /** Ends all sessions at once, and loses the counters. */
  crash(): void {
    this.isUp = false;
    this.run++;
    for (const database of this.databases) database.crash();
  }

  /**
   * Returns the statistics of each database. The columns are read in the order of the statement, with a pause: the
   * connections before the counters, or the reverse.
   */
  poll(text: string): DatabaseCounters[] {
    const counters = (): string[] => this.databases.map(({ counter }) => `${this.run} ${counter}`);
    const connections = (): boolean[] => this.databases.map(({ sessions }) => sessions.size === 0);
    const isConnectionsFirst = text.indexOf('numbackends') < text.indexOf('tup_inserted');
    const unused = connections();
    const fingerprints = counters();
    // A session may commit and end within the pause.
    if (this.#world.random.chance(0.3))
      for (const database of this.databases) {
        if (isConnectionsFirst) database.flushStatistics();
        else database.endOutsideSessions();
      }
    const first = isConnectionsFirst ? unused : connections();
    const last = isConnectionsFirst ? counters() : fingerprints;
    return this.databases.map((database, index) => ({
      name: database.name,
      isUnused: first[index] as boolean,
      fingerprint: `${database.oid} ${last[index]}`,
      source: database.source,
    }));
  }
}

/** One database: what is committed, its sessions, and the counter of its written rows. */
export class TenantDatabase {
  readonly server: TenantServer;
  readonly name: string;
  readonly oid: number;
  readonly history: TenantHistory;
  readonly sessions = new Set<DatabaseSession>();
  /** The rows that ended sessions, and sessions from time to time, have added to the statistics. */
  counter = 0;
  /** True after the tenant has moved away: nobody can log in. */
  isClosed = false;
  readonly #world: CacheWorld;

  constructor(world: CacheWorld, server: TenantServer, name: string, oid: number, history: TenantHistory) {
    this.#world = world;
    this.server = server;
    this.name = name;
    this.oid = oid;
    this.history = history;
  }

  get source(): string {
    return `${this.server.run} ${this.oid} ${this.name}`;
  }

  get isReachable(): boolean {
    return this.server.isUp && !this.isClosed;
  }

  openSession(by: string, onEnd: () => void = () => {}): DatabaseSession {
    const session = new DatabaseSession(this.#world, this, by, onEnd);
    this.sessions.add(session);
    return session;
  }

  /** Commits a change outside the service, which nobody announces. */
  changeOutside(resource: string): void {
    const { random, scheduler } = this.#world;
    const session = this.openSession('outside');
    session.write(resource);
    session.commit();
    // A session inside of its next transaction adds nothing to the statistics, however long that takes.
    scheduler.after(random.chance(0.5) ? random.between(0, 3_000) : random.between(0, 45_000), () => session.end());
  }

  isLockedFor(key: string, reader: DatabaseSession): boolean {
    for (const session of this.sessions) if (session !== reader && session.locks.has(key)) return true;
    return false;
  }

  crash(): void {
    this.counter = 0;
    for (const session of this.sessions) session.end(false);
  }

  flushStatistics(): void {
    for (const session of this.sessions) session.flushStatistics();
  }

  endOutsideSessions(): void {
    for (const session of this.sessions) if (session.by === 'outside') session.end();
  }
}

/** A session, on the side of the server. */
export class DatabaseSession {
  readonly database: TenantDatabase;
  readonly by: string;
  readonly locks = new Set<string>();
  readonly #world: CacheWorld;
  readonly #onEnd: () => void;
  /** The resources that the open transaction has written; undefined outside of a transaction. */
  #written: string[] | undefined;
  #hasFailed = false;
  #hasEnded = false;
  #uncounted = 0;

  constructor(world: CacheWorld, database: TenantDatabase, by: string, onEnd: () => void) {
    this.#world = world;
    this.database = database;
    this.by = by;
    this.#onEnd = onEnd;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get isInTransaction(): boolean {
    return this.#written !== undefined;
  }

  begin(): void {
    this.#written = [];
    this.#hasFailed = false;
  }

  write(resource: string): void {
    this.#written ??= [];
    this.#written.push(resource);
  }

  fail(): void {
    this.#hasFailed = true;
  }

  /** @returns the command tag */
  commit(): 'COMMIT' | 'ROLLBACK' {
    const written = this.#hasFailed ? [] : (this.#written ?? []);
    this.#written = undefined;
    for (const resource of written) {
      this.#uncounted++;
      this.database.history.add(resource, { at: this.#world.now, by: this.by });
      this.#world.trace(() => `${this.by} commits ${this.database.name}/${resource}`);
    }
    // A session adds to the statistics some time after the commit, at the latest before it ends.
    if (written.length > 0 && this.by !== 'outside')
      this.#world.scheduler.after(this.#world.random.between(0, 12_000), () => this.flushStatistics());
    return this.#hasFailed ? 'ROLLBACK' : 'COMMIT';
  }

  rollback(): void {
    this.#written = undefined;
  }

  flushStatistics(): void {
    if (this.#hasEnded) return;
    this.database.counter += this.#uncounted;
    this.#uncounted = 0;
  }

  /** Rolls back, and releases the locks. */
  end(isClean = true): void {
    if (this.#hasEnded) return;
    if (isClean) this.flushStatistics();
    this.#hasEnded = true;
    this.rollback();
    this.database.sessions.delete(this);
    this.#onEnd();
  }
}
