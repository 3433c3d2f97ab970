import { setTimeout as delay } from 'node:timers/promises';
import { GrantLoop } from '../../connections/grant-loop.ts';
import {
  createGrantStore,
  findStatement,
  type GrantStore,
  type ProcessConnection,
} from '../../control/connection-grants.ts';
import { closeIdleConnections, controlServerIdentity } from '../../control/database.ts';
import type { Installation } from '../../installation.ts';
import { type ConnectionGate, withConnection, withConnectionGate } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { serverAddress } from '../../postgres/server-address.ts';
import { GrantedConnections } from './granted-connections.ts';

/** Connections of the pool of the control database: the tasks of a command share them. */
const controlConnections = 1;
const maxLeaveMs = 1_000;
/** A process that cannot leave under the entry lock is found to be gone. */
const maxEntryMs = 5_000;
/** SQLSTATEs of a control database without the tables of the budget: it does not exist, or a migration is missing. */
const notMigrated = ['3D000', '42P01', '42703'];

/**
 * Runs the work of a command, whose connections count against the connection budget of their servers. Without a control
 * database that has the tables for that, nothing is counted.
 * @param budget `CONNECTION_BUDGET`
 * @param onWait called with a sentence when the command has waited for 3 s
 * @throws {OperatorError} when no connection becomes free for 30 s
 */
export async function withConnectionBudget<T>(
  installation: Installation,
  budget: number,
  onWait: (text: string) => void,
  work: () => Promise<T>,
): Promise<T> {
  const { control, member, secrets } = installation;
  if (!member) return work();
  const store = createGrantStore(control, member.process, secrets);
  const controlServer = await controlServerIdentity(control)
    .then(async identity => {
      const server = identity ?? serverAddress(installation.controlUrl);
      await store.read(server);
      return server;
    })
    .catch(error => {
      if (!notMigrated.includes(sqlState(error) ?? '')) throw error;
      return undefined;
    });
  const ungoverned = member.maxControl;
  if (controlServer === undefined) {
    member.maxControl = () => controlConnections;
    return work();
  }
  const command = new CommandConnections({ installation, store, budget, controlServer, onWait });
  member.maxControl = () => command.maxControl;
  try {
    await command.join();
    member.entry.release();
    return await withConnectionGate(command, work);
  } finally {
    member.maxControl = ungoverned;
    await closeIdleConnections(control, 1).catch(() => {});
    await command.stop();
    if (await member.entry.acquire(maxEntryMs)) await command.leave(); // the installation releases the lock
  }
}

interface CommandOptions {
  installation: Installation;
  store: GrantStore;
  budget: number;
  /** The server of the control database, as all processes name it. */
  controlServer: string;
  onWait: (text: string) => void;
}

/** The connections of a command to all servers. Each server has a loop of exchanges while the command runs. */
class CommandConnections implements ConnectionGate {
  readonly processId: string;
  readonly #options: CommandOptions;
  readonly #servers = new Map<string, GrantedConnections>();
  #names: Promise<ReadonlyMap<string, string>> | undefined;

  constructor(options: CommandOptions) {
    this.#options = options;
    this.processId = options.store.process.id;
  }

  get maxControl(): number {
    return this.#connectionsTo(this.#options.controlServer, this.#options.installation.controlUrl).loop.maxControl;
  }

  /** Resolves when the connection of this command to the control database is within the budget. */
  async join(): Promise<void> {
    const { controlServer, installation } = this.#options;
    const connections = this.#connectionsTo(controlServer, installation.controlUrl);
    await connections.waitUntil(() => connections.loop.isMember);
  }

  async acquire(url: string, max: number): Promise<{ count: number; release: () => void }> {
    const address = serverAddress(url);
    this.#names ??= this.#readNames();
    const connections = this.#connectionsTo((await this.#names).get(address) ?? address, url);
    return connections.acquire(max);
  }

  /** Ends the exchanges. */
  async stop(): Promise<void> {
    await Promise.all([...this.#servers.values()].map(({ loop }) => loop.stop()));
  }

  /** Gives everything back. Never rejects: the other processes find that this one is gone. */
  async leave(): Promise<void> {
    const left = this.#options.store.leave().catch(() => {});
    await Promise.race([left, delay(maxLeaveMs, undefined, { ref: false })]);
  }

  #connectionsTo(server: string, url: string): GrantedConnections {
    const known = this.#servers.get(server);
    if (known) return known;
    const { store, budget, controlServer, onWait } = this.#options;
    const isControlServer = server === controlServer;
    const find: GrantStore['findConnections'] = isControlServer ? store.findConnections : findOn(url);
    const loop = new GrantLoop({
      server,
      store,
      max: budget,
      base: isControlServer ? controlConnections : 0,
      findConnections: async (processes, end) => (await find(processes, end)).map(({ process }) => process),
      log: { warn: () => {} }, // the queries of the command fail, too
    });
    const connections = new GrantedConnections(loop, { address: serverAddress(url), budget, onWait });
    this.#servers.set(server, connections);
    loop.start(connections);
    return connections;
  }

  /** Reads what all processes call the servers, by address. */
  async #readNames(): Promise<ReadonlyMap<string, string>> {
    const { installation, controlServer } = this.#options;
    const rows = await installation.control.em
      .fork()
      .execute<{ address: string; identity: string }[]>(
        'select address, identity from servers where address is not null and identity is not null',
      );
    const names = rows.map(({ address, identity }): [string, string] => [serverAddress(address), identity]);
    return new Map([...names, [serverAddress(installation.controlUrl), controlServer]]);
  }
}

/** Asks a server for the connections of processes, on a connection of this command. */
function findOn(url: string): GrantStore['findConnections'] {
  return (processes, end) =>
    withConnection(url, async client => (await client.query<ProcessConnection>(findStatement(processes, end))).rows);
}
