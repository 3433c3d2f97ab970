import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import type { DatabaseStep } from '../../src/operator/databases/protocol/database-protocol.ts';
import type { ListedDatabase } from '../../src/operator/databases/verbs/list-databases.ts';
import type { MoveSummary } from '../../src/operator/databases/verbs/move-tenant.ts';
import { type RunningScript, type ScriptResult, startScript } from './command-line.ts';
import { eventually } from './eventually.ts';
import { jsonLines } from './json-lines.ts';
import { type OwnServer, startOwnServer } from './own-server.ts';
import { runCommand } from './run-command.ts';
import { postgresUrl, quickSettings } from './test-server.ts';
import { createWorld, type World } from './world.ts';

/** A world with another PostgreSQL server, `second`, to which its tenants can be moved. */
export class TwoServers {
  readonly world: World;
  readonly second: OwnServer;

  private constructor(world: World, second: OwnServer) {
    this.world = world;
    this.second = second;
  }

  /**
   * @param environment environment variables of the service and of commands
   * @param settings further settings of the second server, `name=value`
   */
  static async start(
    environment: Record<string, string>,
    settings: readonly string[] = [],
  ): Promise<TwoServers> {
    const [world, second] = await Promise.all([
      createWorld(environment),
      startOwnServer('second', [...quickSettings, 'max_connections=60', ...settings]),
    ]);
    // The rights that a provider of PostgreSQL gives: moves run with them on one side, as
    // superuser on the other.
    await withConnection(second.url, async client => {
      await client.query(`create role operator login createdb createrole password 'secret'`);
      await client.query('create database operator owner operator');
    });
    const servers = new TwoServers(world, second);
    const url = databaseUrl(second.url, 'operator', { user: 'operator', password: 'secret' });
    await servers.runWell(['server', 'add', 'second'], url);
    return servers;
  }

  async close(): Promise<void> {
    await this.world.close();
    await this.second.close();
  }

  run(args: string[], input = ''): Promise<ScriptResult> {
    return runCommand('scripts/tenant.ts', args, this.world.environment, input);
  }

  /**
   * Runs a command; again, while another one works on its tenant: the guard of a killed command
   * may do so for a moment.
   */
  runWhenFree(args: string[], input = ''): Promise<ScriptResult> {
    return eventually(async () => {
      const ended = await this.run(args, input);
      return ended.stderr.includes('Another command works on') ? undefined : ended;
    });
  }

  /**
   * Runs a command that must succeed, when no other one works on its tenant.
   * @returns what it prints
   */
  async runWell(args: string[], input = ''): Promise<string> {
    const { code, stdout, stderr } = await this.runWhenFree(args, input);
    expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
    return stdout;
  }

  /**
   * Moves a tenant with a command.
   * @returns what it prints at its end
   */
  async move(...args: string[]): Promise<MoveSummary> {
    return jsonLines(await this.runWell(moveArguments(args))).at(-1);
  }

  /**
   * Starts a move in a process of its own.
   * @returns it, when it begins this step or has ended
   */
  async startMove(step: DatabaseStep, ...args: string[]): Promise<RunningScript> {
    const running = startScript('scripts/tenant.ts', moveArguments(args), this.world.environment);
    const hasBegun = () =>
      running.output.stdout.includes(`"step":"${step}"`) || running.process.exitCode !== null;
    await eventually(hasBegun, 120_000);
    return running;
  }

  /** Returns the databases of a tenant, as operators list them. */
  async databases(slug = 'acme'): Promise<ListedDatabase[]> {
    return JSON.parse(await this.runWell(['databases', slug, '--json']));
  }

  /** Returns the server and the state of each database of a tenant. */
  async states(slug = 'acme'): Promise<string[]> {
    return (await this.databases(slug)).map(({ server, state }) => `${server} ${state}`).sort();
  }

  /** Returns the name of the server that serves a tenant. */
  async serverOf(slug = 'acme'): Promise<string> {
    return (await this.#current(slug)).server;
  }

  /** Returns the name of the server to which a tenant can be moved. */
  async otherServer(slug = 'acme'): Promise<string> {
    return (await this.serverOf(slug)) === 'second' ? 'default' : 'second';
  }

  /** Returns the superuser's URL of the database that serves a tenant. */
  async currentUrl(slug = 'acme'): Promise<string> {
    const { server, database } = await this.#current(slug);
    return databaseUrl(this.#urlOf(server), database);
  }

  /**
   * Returns which databases and login roles of tenants, or of this name, a server has. Each
   * name is there once.
   */
  namesOn(server: string, name = '[a-z0-9_]+_tenant_[0-9]+_[0-9a-f]{12}'): Promise<string[]> {
    return withConnection(this.#urlOf(server), async client => {
      const { rows } = await client.query<{ name: string }>(
        `select name from (select datname as name from pg_database union select rolname from pg_roles) as names
          where name ~ ('^(' || $1 || ')$') order by name`,
        [name],
      );
      return rows.map(row => row.name);
    });
  }

  /** Runs SQL as superuser in the database `postgres` of the second server. */
  onSecond(text: string): Promise<unknown> {
    return withConnection(this.second.url, client => client.query(text));
  }

  #urlOf(server: string): string {
    return server === 'second' ? this.second.url : postgresUrl();
  }

  async #current(slug: string): Promise<ListedDatabase> {
    const current = (await this.databases(slug)).find(({ state }) => state === 'current');
    return current ?? expect.fail(`${slug} has no database`);
  }
}

/**
 * Returns the arguments of a move, by default with a pause that is longer than a move permits
 * by itself: the machine may be busy.
 */
function moveArguments(args: readonly string[]): string[] {
  return ['move', '--pause', '60', ...args, '--json'];
}
