import { withConnection } from '../../src/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import type { TestTenant, World } from '../support/world.ts';

/** One record of a tenant, on a server where somebody may write to it behind the service's back. */
export class Watched {
  readonly #world: World;
  readonly #tenant: TestTenant;
  readonly #client: Client;
  readonly #path: string;

  constructor(world: World, tenant: TestTenant, client: Client, path: string) {
    this.#world = world;
    this.#tenant = tenant;
    this.#client = client;
    this.#path = path;
  }

  /** What the service says its name is; undefined when it is not there. */
  async name(): Promise<string | undefined> {
    return (await this.#client.get(this.#path)).body.Name;
  }

  /** Asks the database, which the service connects to. */
  async readThrough(): Promise<void> {
    await eventually(async () => (await this.#client.get(this.#path, { 'Cache-Control': 'no-cache' })).status === 200);
  }

  /** Tenant connections that the service has opened, in all. */
  get opened(): number {
    return [...this.#world.service.databases.budgets.values()].reduce((sum, { counts }) => sum + counts.opened, 0);
  }

  poll(): Promise<void> {
    return this.#world.service.writeMonitor.poll();
  }

  /** Time goes by, and at the end of it there is a poll. */
  async pass(seconds: number): Promise<void> {
    this.#world.clock.monotonicOffsetMs += seconds * 1_000;
    await this.poll();
  }

  async minute(): Promise<void> {
    for (let i = 0; i < 6; i++) await this.pass(10);
  }

  /** The service keeps the record, read after a poll, and has no connection to its database. */
  async keep(): Promise<void> {
    await this.leave();
    await this.poll();
    this.#world.clock.monotonicOffsetMs += 60_000;
    await eventually(async () => {
      await this.leave();
      const { opened } = this;
      await this.name();
      return this.opened === opened;
    });
  }

  /** The service has no connection to the database any more. */
  leave(): Promise<unknown> {
    const ours = `from pg_stat_activity where datname = '${this.#tenant.database}' and application_name = 'backoffice-api'`;
    return this.#operator(`select pg_terminate_backend(pid, 5000) ${ours}`);
  }

  /** Nobody at all is connected to the database any more. */
  async left(): Promise<void> {
    await this.leave();
    const one = `select 1 from pg_stat_database where numbackends = 0 and datname = '${this.#tenant.database}'`;
    await eventually(async () => (await this.#operator(one)).length === 1);
  }

  #operator(statement: string): Promise<object[]> {
    const server = new URL(this.#tenant.adminUrl);
    server.pathname = '/postgres';
    return withConnection(server.href, async client => (await client.query(statement)).rows);
  }
}
