import { GrantHolder } from '../../src/budget/grant-holder.ts';
import { SimulatedPool } from './simulated-pool.ts';
import type { SimulatedWorld } from './simulated-world.ts';

/**
 * A process of the service or a command, with a pool for each server. It can be stopped and continued, killed, and cut
 * off.
 */
export class SimulatedProcess {
  readonly name: string;
  readonly pools: readonly SimulatedPool[];
  /** False while a partition separates it from the control database. */
  isConnected = true;
  /** True once it ends cleanly. */
  isLeaving = false;
  /** True once its first connection to the control database was granted. */
  hasEntered = false;
  readonly #world: SimulatedWorld;
  readonly #clockStart: number;
  readonly #clockRate: number;
  readonly kind: 'service' | 'command';
  readonly #delayed: (() => void)[] = [];
  #state: 'running' | 'stopped' | 'dead' = 'running';

  constructor(world: SimulatedWorld, name: string, kind: 'service' | 'command') {
    const { random, budgets } = world;
    this.#world = world;
    this.name = name;
    this.kind = kind;
    world.processes.push(this);
    // Monotonic clocks have different origins, and run at slightly different rates.
    this.#clockStart = random.between(0, 1_000_000);
    this.#clockRate = random.between(0.99, 1.01);
    this.pools = budgets.map((budget, server) => {
      const holder = new GrantHolder({
        id: name,
        kind,
        budget,
        base: Math.min(world.base(server), kind === 'command' ? 1 : 2),
      });
      return new SimulatedPool(world, this, server, holder);
    });
    this.#tick();
  }

  get isRunning(): boolean {
    return this.#state === 'running';
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  /** Its monotonic clock, which a stop does not stop. */
  get clock(): number {
    return this.#clockStart + this.#world.scheduler.now * this.#clockRate;
  }

  /** Lets something happen to the process: at once, after it continues, or never. */
  deliver(event: () => void): void {
    if (this.#state === 'running') event();
    else if (this.#state === 'stopped') this.#delayed.push(event);
  }

  /** True if it may connect to the control database: it has entered, or has the turn to do so. */
  mayConnect(): boolean {
    if (!this.hasEntered && (this.pools[0]?.holder.reserved ?? 0) > 0) {
      this.hasEntered = true;
      this.#world.turn.release(this);
    }
    return this.hasEntered || this.#world.turn.take(this);
  }

  stop(): void {
    this.#state = 'stopped';
    for (const pool of this.pools) pool.onStop();
  }

  continue(): void {
    this.#state = 'running';
    for (let event = this.#delayed.shift(); event && this.isRunning; event = this.#delayed.shift()) event();
  }

  kill(): void {
    this.#state = 'dead';
    for (const pool of this.pools) pool.onKill();
  }

  /** Ends cleanly: removes its grants once all connections are closed. */
  leave(): void {
    this.isLeaving = true;
    for (const pool of this.pools) pool.leave();
  }

  #tick(): void {
    this.#world.scheduler.after(this.#world.random.between(80, 120), () => {
      if (this.isDead) return;
      this.deliver(() => {
        for (const pool of this.pools) pool.tick();
        this.#tick();
      });
    });
  }
}
