import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { GrantHolder, type GrantReply, type GrantRequest, type ServerUse } from '../budget/grant-holder.ts';
import type { GrantStore } from '../control/connection-grants.ts';
import { describeError } from '../describe-error.ts';
import type { ConnectionBudget } from './connection-budget.ts';

interface GrantLoopOptions {
  /** The server, as all processes name it. */
  server: string;
  store: GrantStore;
  /** Maximum connections to the server, over all processes. */
  max: number;
  /** Connections of this process to the control database, if it is on the server. */
  reserved: number;
  /** Which of these processes have connections to the server? */
  findConnections: (processes: readonly string[]) => Promise<string[]>;
  log: Logger;
}

const tickMs = 50;
/** Shorter than the time for which connections may be opened after an exchange, so that a retry comes in time. */
const requestTimeoutMs = 1_500;

/** Keeps the connections of this process to one server within its grant: runs the exchanges of a `GrantHolder`. */
export class GrantLoop {
  readonly #options: GrantLoopOptions;
  readonly #holder: GrantHolder;
  #timer: NodeJS.Timeout | undefined;
  #exchange: Promise<void> | undefined;
  #isStopped = false;
  #isFailing = false;

  constructor(options: GrantLoopOptions) {
    const { store, max, reserved } = options;
    this.#options = options;
    this.#holder = new GrantHolder({ id: store.process.id, budget: max, reserved });
  }

  /** True while a connection may be opened. */
  mayOpen(): boolean {
    return this.#holder.mayOpen(performance.now());
  }

  /** Sets the maximum of `budget` from now on. The first exchange begins at once. */
  start(budget: ConnectionBudget): void {
    this.#timer = setInterval(() => this.#tick(budget), tickMs).unref();
    this.#tick(budget);
  }

  /** Resolves when the exchange under way has ended. Every connection must be closed. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearInterval(this.#timer);
    await this.#exchange;
  }

  #tick(budget: ConnectionBudget): void {
    if (this.#exchange || !this.#holder.isDue(performance.now(), useOf(budget))) return;
    this.#exchange = this.#runExchange(budget).finally(() => {
      this.#exchange = undefined;
    });
  }

  async #runExchange(budget: ConnectionBudget): Promise<void> {
    const peakInUse = budget.takePeakInUse();
    let request: GrantRequest | undefined = this.#holder.begin(performance.now());
    while (request && !this.#isStopped) {
      const reply: GrantReply = await this.#perform(request);
      const { held, inUse, waiting } = useOf(budget);
      const use = { held, waiting, inUse: Math.max(inUse, peakInUse) };
      request = this.#holder.receive(performance.now(), reply, use);
      budget.setMax(this.#holder.limit);
    }
  }

  /** Never rejects. A request that takes too long may still have an effect. */
  async #perform(request: GrantRequest): Promise<GrantReply> {
    const timeout = new AbortController();
    const late = delay(requestTimeoutMs, undefined, { signal: timeout.signal, ref: false }).then(
      () => Promise.reject(new Error('the control database did not answer in time')),
      () => failed,
    );
    try {
      const reply = await Promise.race([this.#send(request), late]);
      this.#isFailing = false;
      return reply;
    } catch (error) {
      if (!this.#isFailing)
        this.#options.log.warn(
          { event: 'connection_grant', server: this.#options.server, err: describeError(error) },
          'no connection is opened until the control database confirms how many this process may have',
        );
      this.#isFailing = true;
      return failed;
    } finally {
      timeout.abort();
    }
  }

  async #send(request: GrantRequest): Promise<GrantReply> {
    const { store, server, findConnections } = this.#options;
    if (request.kind === 'read') return { kind: 'grants', server: await store.read(server) };
    if (request.kind === 'write') return { kind: (await store.write(server, request.change)) ? 'written' : 'outdated' };
    // A process counts as connected until it is known not to be. An exchange must not fail for that.
    const connected = findConnections(request.of).catch(() => request.of);
    const late = delay(requestTimeoutMs / 2, request.of, { ref: false });
    return { kind: 'connections', of: await Promise.race([connected, late]) };
  }
}

const failed: GrantReply = { kind: 'failed' };

function useOf(budget: ConnectionBudget): ServerUse {
  const { open, inUse } = budget.usage;
  return { held: open, inUse, waiting: budget.unmetDemand };
}
