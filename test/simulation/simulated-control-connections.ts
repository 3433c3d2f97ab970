import type { GrantHolder } from '../../src/budget/grant-holder.ts';
import { SimulatedConnection } from './simulated-connection.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedWorld } from './simulated-world.ts';

/** The connections of one process to the control database, which is on the first server. */
export class SimulatedControlConnections {
  readonly #world: SimulatedWorld;
  readonly #process: SimulatedProcess;
  readonly #holder: GrantHolder;
  readonly #connections = new Set<SimulatedConnection>();
  /** The connection over which the process asks for its first grant. */
  #entry: SimulatedConnection | undefined;

  constructor(world: SimulatedWorld, process: SimulatedProcess, holder: GrantHolder) {
    this.#world = world;
    this.#process = process;
    this.#holder = holder;
  }

  get all(): Iterable<SimulatedConnection> {
    return this.#connections;
  }

  /** Opens as many as are reserved; one without a grant, in the turn of the process. */
  open(): void {
    while (this.#connections.size < this.#max) this.#openOne();
  }

  /** Closes all but `keep`. */
  close(keep: number): void {
    for (const connection of [...this.#connections].slice(keep))
      if (connection.state === 'idle') connection.close(() => this.forget(connection));
  }

  get isDown(): boolean {
    return [...this.#connections].every(({ state }) => state !== 'opening') && this.#connections.size <= 1;
  }

  get isClosed(): boolean {
    return this.#connections.size === 0;
  }

  forget(connection: SimulatedConnection): void {
    this.#connections.delete(connection);
    if (this.#entry === connection) this.#entry = undefined;
  }

  get #max(): number {
    return this.#holder.mayOpen(this.#process.clock) ? Math.max(1, this.#holder.reserved) : 1;
  }

  #openOne(): void {
    const connection = new SimulatedConnection(this.#world, this.#process, 0);
    if (this.#connections.size === 0) this.#entry = connection;
    this.#connections.add(connection);
    connection.open({
      mayContinue: () => connection === this.#entry || this.#connections.size <= this.#max,
      onOpen: () => {
        connection.state = 'idle';
      },
      onRefused: () => this.forget(connection),
    });
  }
}
