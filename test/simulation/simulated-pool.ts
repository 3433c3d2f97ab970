import type { GrantReply, GrantRequest, ServerUse } from '../../src/budget/exchange-messages.ts';
import type { GrantHolder } from '../../src/budget/grant-holder.ts';
import { SimulatedConnection } from './simulated-connection.ts';
import { SimulatedControlConnections } from './simulated-control-connections.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedWorld } from './simulated-world.ts';

const requestTimeoutMs = 1_500;
const maxTurnMs = 5_000;

/** The connections of one process to one server, and the load that needs them. */
export class SimulatedPool {
  readonly holder: GrantHolder;
  /** Requests that ended. */
  served = 0;
  readonly #world: SimulatedWorld;
  readonly #process: SimulatedProcess;
  readonly #server: number;
  readonly #connections = new Set<SimulatedConnection>();
  readonly #control: SimulatedControlConnections | undefined;
  /** Requests at a time. */
  #load = 0;
  #requests = 0;
  #waiting = 0;
  #request = 0;
  #isLeaving = false;
  #hasLeft = false;
  #leaveBy: number | undefined;

  constructor(world: SimulatedWorld, process: SimulatedProcess, server: number, holder: GrantHolder) {
    this.#world = world;
    this.#process = process;
    this.#server = server;
    this.holder = holder;
    if (world.base(server) > 0) this.#control = new SimulatedControlConnections(world, process, holder);
  }

  get hasLeft(): boolean {
    return this.#hasLeft;
  }

  get use(): ServerUse {
    return { held: this.#connections.size, inUse: this.#count('in use'), waiting: this.#waiting };
  }

  set load(load: number) {
    if (this.#isLeaving) return;
    this.#load = load;
    const abandoned = Math.max(0, Math.min(this.#waiting, this.#requests - load));
    this.#waiting -= abandoned;
    this.#requests -= abandoned;
    while (this.#requests < load) this.#startRequest();
  }

  leave(): void {
    this.load = 0;
    this.#isLeaving = true;
  }

  tick(): void {
    const { holder } = this;
    if (this.#hasLeft) {
      this.#control?.close(0);
      if (this.#control?.isClosed) this.#world.turn.release(this.#process);
      return;
    }
    if (!this.#process.mayConnect()) return;
    if (!this.#isLeaving) this.#control?.open();
    if (this.#isLeaving && this.#isUnused()) this.#leaveInTurn();
    else if (holder.isDue(this.#process.clock, this.use)) this.#send(holder.begin(this.#process.clock));
    this.#serve();
  }

  onKill(): void {
    this.#load = 0;
    this.#endAfter(0, this.#world.isCalm ? 300 : 2_000);
  }

  /** The server ends sessions that have been idle for too long. */
  onStop(): void {
    this.#endAfter(1_000, 60_000, () => !this.#process.isRunning);
  }

  /** Another process ends the connections that the server shows. */
  endConnections(): void {
    this.#endAfter(0, 50);
  }

  /** The server ends the connections that it counts now, each after a random time. */
  #endAfter(min: number, max: number, isDue = () => true): void {
    const { random, scheduler } = this.#world;
    for (const connection of [...this.#connections, ...(this.#control?.all ?? [])]) {
      if (!connection.exists) continue;
      scheduler.after(random.between(min, max), () => {
        if (!connection.exists || !isDue()) return;
        connection.vanish();
        this.#process.deliver(() => {
          if (connection.state === 'in use') return; // ends with its request
          this.#connections.delete(connection);
          this.#control?.forget(connection);
        });
      });
    }
  }

  /** Sends a request of the holder, and returns the reply to it unless that takes too long or is lost. */
  #send(request: GrantRequest): void {
    const number = ++this.#request;
    const settle = (reply: GrantReply): void => {
      this.#process.deliver(() => {
        if (number !== this.#request) return;
        this.#request++;
        const next = this.holder.receive(this.#process.clock, reply, this.use);
        this.#world.trace(() => `${this.#process.name} ${reply.kind} → limit ${this.holder.limit}`);
        this.#closeAboveLimit();
        if (next) this.#send(next);
        this.#serve();
      });
    };
    this.#world.transmit(this.#process, this.#server, request, settle);
    this.#world.scheduler.after(requestTimeoutMs, () => settle({ kind: 'failed' }));
  }

  /** Closes the idle connections. @returns true when no connection is left */
  #isUnused(): boolean {
    for (const connection of this.#connections) if (connection.state === 'idle') this.#close(connection);
    this.#control?.close(1);
    return this.#connections.size === 0 && (this.#control?.isDown ?? true);
  }

  /** Removes the grant while its last connection is open, or closes that and leaves the removal to the others. */
  #leaveInTurn(): void {
    const { clock } = this.#process;
    this.#leaveBy ??= clock + maxTurnMs;
    if (!this.#control || this.#world.turn.take(this.#process)) this.#removeGrant();
    else if (clock > this.#leaveBy) this.#hasLeft = true;
  }

  #removeGrant(): void {
    const { random, control, scheduler } = this.#world;
    scheduler.after(random.between(1, 20), () =>
      this.#process.deliver(() => {
        if (this.#process.isConnected) this.#hasLeft ||= control.leave(this.#server, this.#process.name);
      }),
    );
  }

  #startRequest(): void {
    this.#requests++;
    this.#waiting++;
    this.#serve();
  }

  #serve(): void {
    while (this.#waiting > 0) {
      const idle = this.#find('idle');
      if (idle && this.#world.random.chance(0.9)) this.#beginUse(idle);
      else if (idle)
        this.#close(idle); // the request is one of another tenant
      else if (this.#connections.size < this.holder.limit && this.holder.mayOpen(this.#process.clock)) this.#open();
      else return;
    }
  }

  #beginUse(connection: SimulatedConnection): void {
    const { random, scheduler } = this.#world;
    this.#waiting--;
    connection.state = 'in use';
    scheduler.after(random.chance(0.02) && !this.#world.isCalm ? 3_000 : random.between(50, 600), () =>
      this.#process.deliver(() => {
        if (connection.exists) connection.state = 'idle';
        else this.#connections.delete(connection);
        this.served++;
        this.#requests--;
        this.#closeAboveLimit();
        if (this.#requests < this.#load) this.#startRequest();
        this.#serve();
      }),
    );
  }

  #open(): void {
    const connection = new SimulatedConnection(this.#world, this.#process, this.#server);
    const { holder } = this;
    const mayOpen = (): boolean => holder.mayOpen(this.#process.clock);
    this.#connections.add(connection);
    this.#waiting--; // it serves a waiter when it is open
    connection.open({
      mayContinue: () => mayOpen() && this.#connections.size <= holder.limit,
      onOpen: () => {
        if (!this.#isLeaving) this.#waiting++;
        if (!connection.exists) this.#connections.delete(connection);
        else if (mayOpen()) connection.state = 'idle';
        else this.#close(connection);
        this.#closeAboveLimit();
        this.#serve();
      },
      onRefused: () => {
        if (!this.#isLeaving) this.#waiting++;
        this.#connections.delete(connection);
        this.#serve();
      },
    });
  }

  #closeAboveLimit(): void {
    for (let excess = this.#connections.size - this.#count('closing') - this.holder.limit; excess > 0; excess--) {
      const idle = this.#find('idle');
      if (!idle) return;
      this.#close(idle);
    }
  }

  #close(connection: SimulatedConnection): void {
    connection.close(() => {
      this.#connections.delete(connection);
      this.#serve();
    });
  }

  #count(state: SimulatedConnection['state']): number {
    let count = 0;
    for (const connection of this.#connections) if (connection.state === state) count++;
    return count;
  }

  #find(state: SimulatedConnection['state']): SimulatedConnection | undefined {
    for (const connection of this.#connections) if (connection.state === state) return connection;
    return undefined;
  }
}
