import type { GrantReply, GrantRequest } from '../../src/budget/exchange-messages.ts';
import type { Random } from './random.ts';
import type { Scheduler } from './scheduler.ts';
import { SimulatedControl } from './simulated-control.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import { SimulatedServer } from './simulated-server.ts';
import { SimulatedTurn } from './simulated-turn.ts';

interface Settings {
  scheduler: Scheduler;
  random: Random;
  /** The budget of each server. */
  budgets: readonly number[];
  trace: string[] | undefined;
}

/** What the simulated processes share: time, chance, the network, the control database and the servers. */
export class SimulatedWorld {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly budgets: readonly number[];
  readonly servers: readonly SimulatedServer[];
  readonly control: SimulatedControl;
  readonly processes: SimulatedProcess[] = [];
  readonly turn = new SimulatedTurn();
  /** True while nothing goes wrong. */
  isCalm = false;
  readonly #trace: string[] | undefined;

  constructor({ scheduler, random, budgets, trace }: Settings) {
    this.scheduler = scheduler;
    this.random = random;
    this.budgets = budgets;
    this.servers = budgets.map(() => new SimulatedServer());
    this.control = new SimulatedControl(scheduler, budgets);
    this.#trace = trace;
  }

  trace(line: () => string): void {
    this.#trace?.push(`${this.scheduler.now.toFixed(3)} ${line()}`);
  }

  /** Connections to the control database that a process wants. It is on the first server. */
  base(server: number): number {
    return server === 0 ? 2 : 0;
  }

  /** Sends a request, which may be slow, lost, or answered by a reply that is slow or lost. */
  transmit(
    process: SimulatedProcess,
    server: number,
    request: GrantRequest,
    settle: (reply: GrantReply) => void,
  ): void {
    const { scheduler, random } = this;
    if (!this.isCalm && random.chance(0.02)) return;
    scheduler.after(this.#delay(), () => {
      if (!process.isConnected) return;
      const reply = this.#handle(server, request);
      if (!reply || (!this.isCalm && random.chance(0.03))) return;
      scheduler.after(this.#delay(), () => settle(reply));
    });
  }

  #handle(server: number, request: GrantRequest): GrantReply | undefined {
    if (request.kind === 'find connections') {
      const { servers } = this;
      for (const process of this.processes)
        if (request.end.includes(process.name)) process.pools[server]?.endConnections();
      return { kind: 'connections', of: request.of.filter(holder => (servers[server]?.count(holder) ?? 0) > 0) };
    }
    if (!this.control.isUp) return this.random.chance(0.5) ? { kind: 'failed' } : undefined;
    const reply = this.control.handle(server, request);
    if (request.kind === 'write') {
      const { own, remove } = request.change;
      this.trace(() => `${reply.kind} ${JSON.stringify({ server, ...own, remove })}`);
    }
    return reply;
  }

  #delay(): number {
    const { random } = this;
    return !this.isCalm && random.chance(0.03) ? random.between(50, 4_000) : random.between(0.5, 10);
  }
}
