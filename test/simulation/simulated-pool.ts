import type { GrantHolder, GrantReply, GrantRequest, ServerUse } from '../../src/budget/grant-holder.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedWorld } from './simulated-world.ts';

interface Connection {
  state: 'opening' | 'idle' | 'in use' | 'closing';
  /** True while the server counts it. */
  exists: boolean;
}

const requestTimeoutMs = 1_500;

/** The connections of one process to one server, and the load that needs them. */
export class SimulatedPool {
  readonly holder: GrantHolder;
  /** Requests that ended. */
  served = 0;
  readonly #world: SimulatedWorld;
  readonly #process: SimulatedProcess;
  readonly #server: number;
  readonly #connections = new Set<Connection>();
  /** Requests at a time. */
  #load = 0;
  #requests = 0;
  #waiting = 0;
  #request = 0;
  #isLeaving = false;
  #hasLeft = false;

  constructor(world: SimulatedWorld, process: SimulatedProcess, server: number, holder: GrantHolder) {
    this.#world = world;
    this.#process = process;
    this.#server = server;
    this.holder = holder;
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
    if (this.#hasLeft) return;
    if (this.#isLeaving && this.#isUnused()) this.#removeGrant();
    else if (holder.isDue(this.#process.clock, this.use)) this.#send(holder.begin(this.#process.clock));
    this.#serve();
  }

  onKill(): void {
    this.#load = 0;
    for (const connection of this.#connections) {
      if (!connection.exists) continue;
      this.#world.scheduler.after(this.#world.random.between(0, this.#world.isCalm ? 300 : 2_000), () =>
        this.#vanish(connection),
      );
    }
  }

  /** The server ends sessions that have been idle for too long. */
  onStop(): void {
    const { random, scheduler } = this.#world;
    for (const connection of this.#connections) {
      if (!connection.exists) continue;
      scheduler.after(random.between(1_000, 6_000), () => {
        if (this.#process.isRunning || !connection.exists) return;
        this.#vanish(connection);
        this.#process.deliver(() => this.#connections.delete(connection));
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
    return this.#connections.size === 0;
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

  #beginUse(connection: Connection): void {
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
    const { random, scheduler } = this.#world;
    const connection: Connection = { state: 'opening', exists: false };
    this.#connections.add(connection);
    this.#waiting--; // it serves a waiter when it is open
    const delay = random.chance(0.2) && !this.#world.isCalm ? random.between(100, 5_000) : random.between(5, 40);
    scheduler.after(delay, () =>
      this.#process.deliver(() => {
        if (!this.#isLeaving) this.#waiting++;
        if (this.holder.mayOpen(this.#process.clock)) this.#onOpen(connection);
        else this.#connections.delete(connection);
        this.#serve();
      }),
    );
  }

  #onOpen(connection: Connection): void {
    connection.exists = true;
    connection.state = 'idle';
    this.#world.servers[this.#server]?.add(this.#process.name);
    this.#closeAboveLimit();
  }

  #closeAboveLimit(): void {
    for (let excess = this.#connections.size - this.#count('closing') - this.holder.limit; excess > 0; excess--) {
      const idle = this.#find('idle');
      if (!idle) return;
      this.#close(idle);
    }
  }

  #close(connection: Connection): void {
    const { random, scheduler } = this.#world;
    connection.state = 'closing';
    const delay = random.chance(0.2) && !this.#world.isCalm ? random.between(100, 2_000) : random.between(1, 30);
    scheduler.after(delay, () => {
      this.#vanish(connection);
      scheduler.after(1, () =>
        this.#process.deliver(() => {
          this.#connections.delete(connection);
          this.#serve();
        }),
      );
    });
  }

  #vanish(connection: Connection): void {
    if (!connection.exists) return;
    connection.exists = false;
    this.#world.servers[this.#server]?.remove(this.#process.name);
  }

  #count(state: Connection['state']): number {
    let count = 0;
    for (const connection of this.#connections) if (connection.state === state) count++;
    return count;
  }

  #find(state: Connection['state']): Connection | undefined {
    for (const connection of this.#connections) if (connection.state === state) return connection;
    return undefined;
  }
}
