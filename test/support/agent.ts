import pg from 'pg';
import { eventually } from './eventually.ts';

/**
 * An agent of monitoring, which is connected to each database that lets it in, and
 * connects again at once.
 */
export class Agent {
  readonly #url: string;
  readonly #isWatched: (database: string) => boolean;
  readonly #clients = new Map<string, pg.Client>();
  /** Connections that were opened, by database. */
  readonly connections = new Map<string, number>();
  #running = Promise.resolve();
  #isStopped = false;

  private constructor(url: string, isWatched: (database: string) => boolean) {
    this.#url = url;
    this.#isWatched = isWatched;
  }

  /**
   * @param url of a database that it may always connect to
   * @param isWatched tells to which databases it connects
   */
  static start(url: string, isWatched: (database: string) => boolean = () => true): Agent {
    const agent = new Agent(url, isWatched);
    agent.#running = agent.#run();
    return agent;
  }

  /** Waits until the agent is connected to a database. */
  async isIn(database: string): Promise<void> {
    await eventually(() => this.#clients.has(database));
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
    for (const client of this.#clients.values()) await client.end().catch(() => {});
  }

  async #run(): Promise<void> {
    const home = new pg.Client({ connectionString: this.#url });
    home.on('error', () => {});
    await home.connect();
    while (!this.#isStopped) {
      const { rows } = await home.query<{ name: string }>(
        'select datname as name from pg_database where datallowconn and datname <> current_database()',
      );
      const missing = rows
        .map(({ name }) => name)
        .filter(name => this.#isWatched(name) && !this.#clients.has(name));
      await Promise.all(missing.map(name => this.#connect(name).catch(() => {})));
    }
    await home.end();
  }

  async #connect(database: string): Promise<void> {
    const url = Object.assign(new URL(this.#url), { pathname: `/${database}` }).href;
    const client = new pg.Client({ connectionString: url, application_name: 'metrics-agent' });
    client.on('error', () => {});
    client.on('end', () => this.#clients.delete(database));
    await client.connect();
    this.#clients.set(database, client);
    this.connections.set(database, (this.connections.get(database) ?? 0) + 1);
  }
}
