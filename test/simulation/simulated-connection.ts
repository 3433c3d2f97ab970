import type { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedWorld } from './simulated-world.ts';

interface Outcome {
  /** Asked before each message of the client. */
  mayContinue: () => boolean;
  onOpen: () => void;
  onRefused: () => void;
}

/**
 * One connection of a process to a server, which counts it from the last message of the login until it has closed it.
 */
export class SimulatedConnection {
  state: 'opening' | 'idle' | 'in use' | 'closing' = 'opening';
  /** True while the server counts it. */
  exists = false;
  readonly #world: SimulatedWorld;
  readonly #process: SimulatedProcess;
  readonly #server: number;

  constructor(world: SimulatedWorld, process: SimulatedProcess, server: number) {
    this.#world = world;
    this.#process = process;
    this.#server = server;
  }

  /**
   * The process may be stopped before the last message of the login, or after it: then the server accepts it all the
   * same.
   */
  open({ mayContinue, onOpen, onRefused }: Outcome): void {
    const { random, scheduler, isCalm } = this.#world;
    const delay = random.chance(0.2) && !isCalm ? random.between(100, 5_000) : random.between(3, 20);
    scheduler.after(delay, () =>
      this.#process.deliver(() => {
        if (!mayContinue()) return onRefused();
        scheduler.after(random.between(1, isCalm ? 20 : 400), () => {
          if (this.#process.isDead) return;
          this.exists = true;
          this.#world.servers[this.#server]?.add(this.#process.name);
          scheduler.after(random.between(0.5, 5), () => this.#process.deliver(onOpen));
        });
      }),
    );
  }

  /** @param onClosed called when the server has closed it and the process knows that */
  close(onClosed: () => void): void {
    const { random, scheduler, isCalm } = this.#world;
    this.state = 'closing';
    const delay = random.chance(0.2) && !isCalm ? random.between(100, 2_000) : random.between(1, 30);
    scheduler.after(delay, () => {
      this.vanish();
      scheduler.after(1, () => this.#process.deliver(onClosed));
    });
  }

  vanish(): void {
    if (!this.exists) return;
    this.exists = false;
    this.#world.servers[this.#server]?.remove(this.#process.name);
  }
}
