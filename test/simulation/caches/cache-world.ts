import type { Random } from '../random.ts';
import { Scheduler } from '../scheduler.ts';
import { Violation } from '../violation.ts';

/** What simulated processes and databases share: time, chance and the trace. */
export class CacheWorld {
  readonly scheduler = new Scheduler();
  readonly random: Random;
  /** True while nothing goes wrong. */
  isCalm = false;
  /** The share of the messages that are slow. */
  slowShare = 0.03;
  /** False when a process has received an event whose promises have not been settled yet. */
  isSettled = true;
  /** The first invariant that a run broke. It is thrown between two events, because promises would swallow it. */
  violation: Violation | undefined;
  readonly #trace: string[] | undefined;

  constructor(random: Random, trace: string[] | undefined) {
    this.random = random;
    this.#trace = trace;
  }

  get now(): number {
    return this.scheduler.now;
  }

  trace(line: () => string): void {
    this.#trace?.push(`${this.now.toFixed(3)} ${line()}`);
  }

  fail(text: string): void {
    this.violation ??= new Violation(text);
  }

  /** The delay of one message. */
  delay(): number {
    const { random } = this;
    return !this.isCalm && random.chance(this.slowShare) ? random.between(20, 1_200) : random.between(0.1, 4);
  }

  /**
   * Runs the time on. After each event of a process, all promises that it has settled run before the next event.
   * @throws {Violation} when an invariant is broken
   */
  async advance(ms: number): Promise<void> {
    const end = this.now + ms;
    do {
      if (!this.isSettled) {
        this.isSettled = true;
        await new Promise(resolve => setImmediate(resolve));
      }
      if (this.violation) throw this.violation;
    } while (this.scheduler.runNext(end));
    this.scheduler.now = end;
  }
}

/** One direction of a connection: its messages arrive in order, or not at all once it is closed. */
export class Channel {
  /** Messages that are sent before this simulated time arrive after it. */
  blockedUntil = 0;
  readonly #world: CacheWorld;
  #lastArrival = 0;
  #isClosed = false;

  constructor(world: CacheWorld) {
    this.#world = world;
  }

  send(receive: () => void): void {
    const world = this.#world;
    this.#lastArrival = Math.max(this.#lastArrival, this.blockedUntil, world.now + world.delay());
    world.scheduler.after(this.#lastArrival - world.now, () => {
      if (!this.#isClosed) receive();
    });
  }

  close(): void {
    this.#isClosed = true;
  }
}
