import { withConnection } from '../../src/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import type { TestTenant, World } from '../support/world.ts';

/** One record of a tenant, which a test reads through the service and changes outside the service. */
export class MonitoredRecord {
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

  /** The name that the service returns; undefined when the record does not exist. */
  async name(): Promise<string | undefined> {
    return (await this.#client.get(this.#path)).body.Name;
  }

  /** Reads the record from the database, so that the service has a connection to it. */
  async readUncached(): Promise<void> {
    await eventually(async () => (await this.#client.get(this.#path, { 'Cache-Control': 'no-cache' })).status === 200);
  }

  /** How many tenant connections the service has opened since its start. */
  get openedConnections(): number {
    return [...this.#world.service.databases.budgets.all.values()].reduce((sum, { counts }) => sum + counts.opened, 0);
  }

  poll(): Promise<void> {
    return this.#world.service.writeMonitor.poll();
  }

  /** Advances the clock of the service, and polls at the end. */
  async advance(seconds: number): Promise<void> {
    this.#world.clock.monotonicOffsetMs += seconds * 1_000;
    await this.poll();
  }

  /** Advances the clock by a minute, with a poll every 10 s. */
  async advanceMinute(): Promise<void> {
    for (let i = 0; i < 6; i++) await this.advance(10);
  }

  /** Makes the service cache the record, read after a poll, and closes its connections to the database. */
  async cacheAndDisconnect(): Promise<void> {
    await this.disconnect();
    await this.poll();
    this.#world.clock.monotonicOffsetMs += 60_000;
    await eventually(async () => {
      await this.disconnect();
      const { openedConnections } = this;
      await this.name();
      return this.openedConnections === openedConnections;
    });
  }

  /** Ends the connections of the service to the database. */
  disconnect(): Promise<unknown> {
    return this.#operator(
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = '${this.#tenant.database}' and application_name like 'backoffice-api %'`,
    );
  }

  /** Ends the connections of the service, and waits until the database has no connection at all. */
  async disconnectAll(): Promise<void> {
    await this.disconnect();
    const unused = `select 1 from pg_stat_database where numbackends = 0 and datname = '${this.#tenant.database}'`;
    await eventually(async () => (await this.#operator(unused)).length === 1);
  }

  #operator(statement: string): Promise<object[]> {
    const server = new URL(this.#tenant.adminUrl);
    server.pathname = '/postgres';
    return withConnection(server.href, async client => (await client.query(statement)).rows);
  }
}
