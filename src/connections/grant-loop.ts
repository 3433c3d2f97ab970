import type { Logger } from 'pino';
import type { GrantReply, GrantRequest, ServerUse } from '../budget/exchange-messages.ts';
import { GrantHolder } from '../budget/grant-holder.ts';
import type { GrantStore } from '../control/connection-grants.ts';
import { describeError } from '../log/describe-error.ts';
import { within } from '../runtime/within.ts';

interface GrantLoopOptions {
  /** The server, as all processes name it. */
  server: string;
  store: GrantStore;
  /** Maximum connections to the server, over all processes. */
  max: number;
  /** Connections to the control database that this process wants, if that is on the server; otherwise 0. */
  base: number;
  /**
   * Which of these processes have connections to the server? Those of processes in `end` are ended, where this process
   * may do so.
   */
  findConnections: (processes: readonly string[], end: readonly string[]) => Promise<string[]>;
  log: Pick<Logger, 'warn'>;
}

/** The connections of this process to one server, which the grant limits. */
export interface LimitedConnections {
  readonly usage: { readonly open: number; readonly inUse: number };
  /** Requests that wait for a connection and would get one if the maximum were higher. */
  readonly unmetDemand: number;
  /** Returns the maximum connections in use at a time since the last call. */
  takePeakInUse(): number;
  /** Sets the maximum. Those above it are closed when they are not in use. */
  setMax(max: number): void;
}

const tickMs = 50;
/** Shorter than the time for which connections may be opened after an exchange, so that a retry comes in time. */
const requestTimeoutMs = 1_500;

/** Keeps the connections of this process to one server within its grant: runs the exchanges of a `GrantHolder`. */
export class GrantLoop {
  readonly #options: GrantLoopOptions;
  readonly #holder: GrantHolder;
  #connections: LimitedConnections | undefined;
  #timer: NodeJS.Timeout | undefined;
  #exchange: Promise<void> | undefined;
  #isStopped = false;
  #isFailing = false;

  constructor(options: GrantLoopOptions) {
    const { store, max, base } = options;
    this.#options = options;
    this.#holder = new GrantHolder({ id: store.process.id, kind: store.process.kind, budget: max, base });
  }

  /** True while a connection may be opened. */
  mayOpen(): boolean {
    return this.#holder.mayOpen(performance.now());
  }

  /** True when the connections to the control database are within the budget. */
  get isMember(): boolean {
    return this.mayOpen() && this.#holder.reserved > 0;
  }

  /** Maximum connections to the control database: one, which asks for the grant, until more are granted. */
  get maxControl(): number {
    return this.mayOpen() ? Math.max(1, this.#holder.reserved) : 1;
  }

  /** Sets the maximum of `connections` from now on. The first exchange begins at once. */
  start(connections: LimitedConnections): void {
    this.#connections = connections;
    this.#timer = setInterval(() => void this.tick(), tickMs).unref();
    void this.tick();
  }

  /** Begins an exchange if one is due. @returns the exchange under way; undefined when there is none */
  tick(): Promise<void> | undefined {
    const connections = this.#connections;
    if (this.#exchange || this.#isStopped || !connections) return this.#exchange;
    if (!this.#holder.isDue(performance.now(), useOf(connections))) return undefined;
    this.#exchange = this.#runExchange(connections).finally(() => {
      this.#exchange = undefined;
    });
    return this.#exchange;
  }

  /** Resolves when the exchange under way has ended. Every connection must be closed. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearInterval(this.#timer);
    await this.#exchange;
  }

  async #runExchange(connections: LimitedConnections): Promise<void> {
    const peakInUse = connections.takePeakInUse();
    let request: GrantRequest | undefined = this.#holder.begin(performance.now());
    while (request && !this.#isStopped) {
      const reply: GrantReply = await this.#perform(request);
      const { held, inUse, waiting } = useOf(connections);
      const use = { held, waiting, inUse: Math.max(inUse, peakInUse) };
      request = this.#holder.receive(performance.now(), reply, use);
      connections.setMax(this.#holder.limit);
    }
  }

  /** Never rejects. A request that takes too long may still have an effect. */
  async #perform(request: GrantRequest): Promise<GrantReply> {
    try {
      const reply = await within(this.#send(request), requestTimeoutMs);
      this.#isFailing = false;
      return reply;
    } catch (error) {
      if (!this.#isFailing)
        this.#options.log.warn(
          { event: 'connection_grant', server: this.#options.server, err: describeError(error) },
          'no connection is opened until the control database confirms how many this process may have',
        );
      this.#isFailing = true;
      return { kind: 'failed' };
    }
  }

  async #send(request: GrantRequest): Promise<GrantReply> {
    const { store, server, findConnections } = this.#options;
    if (request.kind === 'read') return { kind: 'grants', server: await store.read(server) };
    if (request.kind === 'write') return { kind: (await store.write(server, request.change)) ? 'written' : 'outdated' };
    // A process counts as connected until it is known not to be. An exchange must not fail for that.
    const connected = within(findConnections(request.of, request.end), requestTimeoutMs / 2);
    return { kind: 'connections', of: await connected.catch(() => [...request.of]) };
  }
}

function useOf({ usage, unmetDemand }: LimitedConnections): ServerUse {
  return { held: usage.open, inUse: usage.inUse, waiting: unmetDemand };
}
