import type { Clock, Timer } from '../../../src/runtime/clock.ts';
import type { CacheWorld } from './cache-world.ts';

/**
 * The event loop of a simulated process: its clock, its timers, and the events that reach it. A stop delays all of them
 * until it continues; a kill rejects what it waits for.
 */
export class VirtualProcess {
  readonly name: string;
  readonly clock: Clock;
  /** Until this simulated time, no message between the process and the control database arrives. */
  controlBlockedUntil = 0;
  readonly #world: CacheWorld;
  readonly #clockStart: number;
  readonly #clockRate: number;
  readonly #rejects = new Set<(error: Error) => void>();
  #delayed: (() => void)[] = [];
  #state: 'running' | 'stopped' | 'dead' = 'running';

  constructor(world: CacheWorld, name: string) {
    this.#world = world;
    this.name = name;
    // Monotonic clocks have different origins, and run at slightly different rates.
    this.#clockStart = world.random.between(0, 1_000_000);
    this.#clockRate = world.random.between(0.995, 1.005);
    this.clock = {
      now: () => this.#clockStart + world.scheduler.now * this.#clockRate,
      setTimeout: (run, ms) => this.#setTimer(run, ms, false),
      clearTimeout: timer => (timer as VirtualTimer | undefined)?.clear(),
      setInterval: (run, ms) => this.#setTimer(run, ms, true),
      clearInterval: timer => (timer as VirtualTimer | undefined)?.clear(),
    };
  }

  get isRunning(): boolean {
    return this.#state === 'running';
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  /** Lets an event reach the process: at once, after it continues, or never. */
  deliver(event: () => void): void {
    if (this.#state === 'stopped') this.#delayed.push(event);
    else if (this.#state === 'running') {
      this.#world.isSettled = false;
      event();
    }
  }

  /** Returns a promise that is settled by an event, or rejected when the process is killed. */
  promise<T>(work: (resolve: (value: T) => void, reject: (error: Error) => void) => void): Promise<T> {
    if (this.isDead) return Promise.reject(killed());
    return new Promise<T>((resolve, reject) => {
      this.#rejects.add(reject);
      const settle = (end: () => void): void =>
        this.deliver(() => {
          this.#rejects.delete(reject);
          end();
        });
      work(
        value => settle(() => resolve(value)),
        error => settle(() => reject(error)),
      );
    });
  }

  stop(): void {
    if (this.isRunning) this.#state = 'stopped';
  }

  continue(): void {
    if (this.#state !== 'stopped') return;
    this.#state = 'running';
    const events = this.#delayed;
    this.#delayed = [];
    for (const event of events) this.#world.scheduler.after(0, () => this.deliver(event));
  }

  kill(): void {
    this.#state = 'dead';
    this.#delayed = [];
    this.#world.isSettled = false;
    for (const reject of this.#rejects) reject(killed());
  }

  #setTimer(run: () => void, ms: number, repeats: boolean): Timer {
    return new VirtualTimer(ms / this.#clockRate, repeats, (delay, fire) =>
      this.#world.scheduler.after(delay + this.#world.random.between(0, 1), () => this.deliver(fire)),
    ).start(run);
  }
}

class VirtualTimer implements Timer {
  readonly #ms: number;
  readonly #repeats: boolean;
  readonly #schedule: (delay: number, fire: () => void) => void;
  #run: () => void = () => {};
  /** Grows with each start, so that what was scheduled before has no effect. */
  #start = 0;

  constructor(ms: number, repeats: boolean, schedule: (delay: number, fire: () => void) => void) {
    this.#ms = ms;
    this.#repeats = repeats;
    this.#schedule = schedule;
  }

  start(run: () => void): this {
    this.#run = run;
    return this.refresh();
  }

  refresh(): this {
    const start = ++this.#start;
    this.#schedule(this.#ms, () => {
      if (start !== this.#start) return;
      if (this.#repeats) this.refresh();
      this.#run();
    });
    return this;
  }

  unref(): this {
    return this;
  }

  clear(): void {
    this.#start++;
  }
}

function killed(): Error {
  return new Error('the process was killed');
}
