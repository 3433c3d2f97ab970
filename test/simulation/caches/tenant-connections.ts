import type { TenantClient } from '../../../src/connections/tenant-client.ts';
import { WriteLocks } from '../../../src/connections/write-locks.ts';
import { PoolError } from '../../../src/postgres/database-error.ts';
import { type CacheWorld, Channel } from './cache-world.ts';
import { failure } from './control-connections.ts';
import type { DatabaseSession, TenantDatabase } from './tenant-server.ts';
import type { VirtualProcess } from './virtual-process.ts';

interface Query {
  name?: string;
  text: string;
  values?: unknown[];
}

interface Result {
  rows: object[];
  command: string;
}

const idleMs = 30_000;
const silenceMs = 9_000;

/** The connections of one process to one tenant database. It takes the place of the connection budget. */
export class TenantConnections {
  readonly #world: CacheWorld;
  readonly #process: VirtualProcess;
  readonly #database: TenantDatabase;
  readonly #max: number;
  readonly #clients = new Set<TenantConnection>();
  readonly #waiting: ((client: TenantConnection) => void)[] = [];

  constructor(world: CacheWorld, process: VirtualProcess, database: TenantDatabase, max: number) {
    this.#world = world;
    this.#process = process;
    this.#database = database;
    this.#max = max;
  }

  get clients(): readonly TenantConnection[] {
    return [...this.#clients];
  }

  async acquire(): Promise<TenantClient> {
    for (;;) {
      const idle = this.clients.find(({ isReusable }) => isReusable);
      if (idle) return idle.beginUse() as unknown as TenantClient;
      if (this.#clients.size < this.#max) return (await this.#open()) as unknown as TenantClient;
      await this.#process.promise<unknown>(resolve => this.#waiting.push(resolve));
    }
  }

  endPool(): void {}

  async #open(): Promise<TenantConnection> {
    const client = new TenantConnection(this.#world, this.#process, this.#database, () => this.#onChange(client));
    this.#clients.add(client);
    try {
      await client.open();
    } catch (error) {
      this.#clients.delete(client);
      this.#onChange(client);
      throw error;
    }
    return client;
  }

  #onChange(client: TenantConnection): void {
    if (!client.isAlive) this.#clients.delete(client);
    this.#waiting.shift()?.(client);
  }
}

/** A connection to a tenant database, as the driver uses a `TenantClient`. */
export class TenantConnection {
  readonly locks: WriteLocks;
  /** Statements that the server has executed. */
  executed = 0;
  source: string | undefined;
  readonly #world: CacheWorld;
  readonly #process: VirtualProcess;
  readonly #database: TenantDatabase;
  readonly #onChange: () => void;
  readonly #up: Channel;
  readonly #down: Channel;
  readonly #rejects = new Set<(error: Error) => void>();
  #session: DatabaseSession | undefined;
  #isInUse = true;
  #isAlive = true;
  #uses = 0;

  constructor(world: CacheWorld, process: VirtualProcess, database: TenantDatabase, onChange: () => void) {
    this.#world = world;
    this.#process = process;
    this.#database = database;
    this.#onChange = onChange;
    this.#up = new Channel(world);
    this.#down = new Channel(world);
    this.locks = new WriteLocks(
      statement => this.query(statement),
      () => this.#isInUse,
      process.clock,
    );
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  get isReusable(): boolean {
    return this.#isAlive && !this.#isInUse && this.#session?.isInTransaction === false;
  }

  async open(): Promise<void> {
    try {
      await this.#settledBy<void>((resolve, reject) =>
        this.#up.send(() => {
          if (!this.#database.isReachable)
            return this.#down.send(() => reject(new PoolError('ETIMEDOUT', 'the server cannot be reached')));
          this.#session = this.#database.openSession(this.#process.name, () => this.#onServerEnd());
          if (this.#process.isDead) this.#session.end();
          const { source } = this.#database;
          this.#down.send(() => {
            this.source = source;
            resolve();
          });
        }),
      );
    } catch (error) {
      this.#isAlive = false;
      throw error;
    }
  }

  query(statement: string | Query): Promise<Result> {
    const query = typeof statement === 'string' ? { text: statement } : statement;
    if (!this.#isAlive) return Promise.reject(new Error('Connection terminated'));
    return this.#settledBy<Result>((resolve, reject) =>
      this.#up.send(() => {
        if (!this.#session || this.#session.hasEnded) return;
        try {
          const result = this.#execute(this.#session, query);
          this.#down.send(() => {
            this.executed++;
            resolve(result);
          });
        } catch (error) {
          this.#session.fail();
          this.#down.send(() => reject(error as Error));
        }
      }),
    );
  }

  async rows(statement: Query): Promise<Result['rows']> {
    return (await this.query(statement)).rows;
  }

  async sendTogether<Queries extends readonly Promise<unknown>[] | []>(send: () => Queries) {
    const queries = send();
    await Promise.allSettled(queries);
    return Promise.all(queries);
  }

  receiveFor<T>(_read: unknown, query: () => Promise<T>): Promise<T> {
    return query();
  }

  endAt(): void {}

  beginUse(): this {
    this.#isInUse = true;
    this.#uses++;
    return this;
  }

  release(): void {
    this.#isInUse = false;
    this.locks.onClientRelease();
    const uses = this.#uses;
    if (!this.isReusable) this.close();
    else
      this.#process.clock.setTimeout(() => {
        if (uses === this.#uses && !this.#isInUse) this.close();
      }, idleMs);
    this.#onChange();
  }

  close(): void {
    this.#isAlive = false;
    this.#up.send(() => this.#session?.end());
    this.#onChange();
  }

  /** Breaks the connection. The server may notice that much later: until then, the session keeps its locks. */
  cut(serverMs: number): void {
    this.#down.close();
    this.#world.scheduler.after(serverMs, () => this.#session?.end());
    this.#process.deliver(() => this.#lose());
  }

  /** Returns a promise that rejects when the connection is lost, or is silent for too long. */
  #settledBy<T>(send: (resolve: (value: T) => void, reject: (error: Error) => void) => void): Promise<T> {
    return this.#process.promise<T>((resolve, reject) => {
      this.#rejects.add(reject);
      const settle = (end: () => void): void => {
        if (this.#rejects.delete(reject)) end();
      };
      this.#world.scheduler.after(silenceMs, () => settle(() => reject(failure('ETIMEDOUT'))));
      send(
        value => settle(() => resolve(value)),
        error => settle(() => reject(error)),
      );
    });
  }

  #onServerEnd(): void {
    this.#up.close();
    this.#world.scheduler.after(this.#world.delay(), () => this.#process.deliver(() => this.#lose()));
  }

  #lose(): void {
    if (!this.#isAlive) return;
    this.#isAlive = false;
    for (const reject of this.#rejects) reject(new Error('Connection terminated unexpectedly'));
    this.#rejects.clear();
    this.#onChange();
  }

  #execute(session: DatabaseSession, { name, text, values = [] }: Query): Result {
    const [value] = values as string[];
    const rows = (...found: object[]): Result => ({ rows: found, command: 'SELECT' });
    switch (name ?? text) {
      case 'resource_state':
        return rows({ free: !this.#database.isLockedFor(String(value), session) });
      case 'simulated_read': {
        const { history } = this.#database;
        return rows({ tenant: history.guid, resource: value, version: history.commits(String(value)).length });
      }
      case 'simulated_write':
        if (this.#world.random.chance(0.05)) throw failure('23505');
        session.write(String(value));
        return rows();
      case 'simulated_change':
        if (this.#world.random.chance(0.05)) throw failure('23505');
        session.begin();
        session.write(String(value));
        session.commit();
        return rows();
      case 'hold':
        session.locks.add(String(value));
        return rows();
      case 'select pg_advisory_unlock_all()':
        session.locks.clear();
        return rows();
      case 'write_monitor':
        return rows(...this.#database.server.poll(text));
      case 'begin':
        session.begin();
        return rows();
      case 'commit':
        return { rows: [], command: session.commit() };
      case 'rollback':
        session.rollback();
        return rows();
      case 'set_actor':
        return rows();
      default:
        throw new Error(`the simulation does not know the statement ${name ?? text}`);
    }
  }
}
