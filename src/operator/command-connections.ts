import { setTimeout as delay } from 'node:timers/promises';
import { maxNested } from '../budget/fair-shares.ts';
import { GrantLoop, type LimitedConnections } from '../connections/grant-loop.ts';
import {
  createGrantStore,
  findStatement,
  type GrantStore,
  type ProcessConnection,
} from '../control/connection-grants.ts';
import { closeIdleConnections, controlServerIdentity } from '../control/database.ts';
import type { Installation } from '../installation.ts';
import { OperatorError } from '../operator-error.ts';
import { type ConnectionGate, withConnection, withConnectionGate } from '../postgres/connection.ts';
import { sqlState } from '../postgres/database-error.ts';
import { serverAddress } from '../postgres/server-address.ts';

/** Connections of the pool of the control database: the tasks of a command take turns. */
const controlConnections = 1;
/** Services give back within a second, and a killed one is found after four. */
const maxWaitMs = 30_000;
const noticeMs = 3_000;
const pollMs = 20;
const maxLeaveMs = 1_000;
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
  const { control, member } = installation;
  if (!member) return work();
  const store = createGrantStore(control, member.process);
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
    return await withConnectionGate(command, work);
  } finally {
    member.maxControl = ungoverned;
    await closeIdleConnections(control, 1).catch(() => {});
    await command.leave();
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

interface LeaseOptions {
  address: string;
  budget: number;
  onWait: (text: string) => void;
}

/** The connections of a command to one server, as far as they are not those of the pool of the control database. */
class ServerLease implements LimitedConnections {
  readonly loop: GrantLoop;
  readonly #options: LeaseOptions;
  #max = 0;
  #open = 0;
  #peak = 0;
  #waiting = 0;
  #progressAt = Number.NEGATIVE_INFINITY;

  constructor(loop: GrantLoop, options: LeaseOptions) {
    this.loop = loop;
    this.#options = options;
  }

  get usage(): { open: number; inUse: number } {
    return { open: this.#open, inUse: this.#open };
  }

  /** With room for connections that the waiting ones will open inside of them. */
  get unmetDemand(): number {
    return this.#waiting > 0 ? this.#waiting - 1 + maxNested : 0;
  }

  takePeakInUse(): number {
    const peak = this.#peak;
    this.#peak = this.#open;
    return peak;
  }

  setMax(max: number): void {
    this.#max = max;
  }

  /** As `ConnectionGate.acquire`. Leaves one for another task if it may take several. */
  async acquire(max: number): Promise<{ count: number; release: () => void }> {
    this.#waiting++;
    try {
      await this.waitUntil(() => this.#open < this.#max && this.loop.mayOpen());
    } finally {
      this.#waiting--;
    }
    const count = Math.min(max, Math.max(1, this.#max - this.#open - 1));
    this.#add(count);
    return { count, release: () => this.#add(-count) };
  }

  /** @throws {OperatorError} when the condition is false and no connection was opened or closed for 30 s */
  async waitUntil(condition: () => boolean): Promise<void> {
    const startedAt = performance.now();
    const { address, budget, onWait } = this.#options;
    let hasNotified = false;
    while (!condition()) {
      const now = performance.now();
      if (now - Math.max(startedAt, this.#progressAt) > maxWaitMs)
        throw new OperatorError(
          `No connection to ${address} became free for 30 s: the processes use all of CONNECTION_BUDGET (${budget}). ` +
            'See which: npm run -s tenant -- processes. Then raise CONNECTION_BUDGET in all processes, or end some of them',
        );
      if (!hasNotified && now - startedAt > noticeMs) {
        hasNotified = true;
        onWait(`Waiting up to 30 s until a connection to ${address} is free within CONNECTION_BUDGET (${budget})`);
      }
      await (this.loop.tick() ?? delay(pollMs));
    }
  }

  #add(count: number): void {
    this.#open += count;
    this.#peak = Math.max(this.#peak, this.#open);
    this.#progressAt = performance.now();
  }
}

/** The connections of a command to all servers. Each server has a loop of exchanges while the command runs. */
class CommandConnections implements ConnectionGate {
  readonly processId: string;
  readonly #options: CommandOptions;
  readonly #servers = new Map<string, ServerLease>();
  #names: Promise<ReadonlyMap<string, string>> | undefined;

  constructor(options: CommandOptions) {
    this.#options = options;
    this.processId = options.store.process.id;
  }

  get maxControl(): number {
    return this.#leaseOf(this.#options.controlServer, this.#options.installation.controlUrl).loop.maxControl;
  }

  /** Resolves when the connection of this command to the control database is within the budget. */
  async join(): Promise<void> {
    const { controlServer, installation } = this.#options;
    const lease = this.#leaseOf(controlServer, installation.controlUrl);
    await lease.waitUntil(() => lease.loop.isMember);
  }

  async acquire(url: string, max: number): Promise<{ count: number; release: () => void }> {
    const address = serverAddress(url);
    this.#names ??= this.#readNames();
    const lease = this.#leaseOf((await this.#names).get(address) ?? address, url);
    return lease.acquire(max);
  }

  /** Ends the exchanges, and gives everything back. Never rejects: the other processes find that this one is gone. */
  async leave(): Promise<void> {
    await Promise.all([...this.#servers.values()].map(({ loop }) => loop.stop()));
    const left = this.#options.store.leave().catch(() => {});
    await Promise.race([left, delay(maxLeaveMs, undefined, { ref: false })]);
  }

  #leaseOf(server: string, url: string): ServerLease {
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
    const lease = new ServerLease(loop, { address: serverAddress(url), budget, onWait });
    this.#servers.set(server, lease);
    loop.start(lease);
    return lease;
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
