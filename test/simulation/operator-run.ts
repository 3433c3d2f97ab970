import type { Random } from './random.ts';
import type { Scheduler } from './scheduler.ts';

/** What runs of the command line need of the world that they are simulated in. */
export interface OperatorWorld {
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** True while nothing goes wrong. */
  readonly isCalm: boolean;
  trace(line: () => string): void;
}

/**
 * A simulated run of the command line, which takes the steps of a protocol. It can be killed, stopped and continued, lose
 * its connection to the control database, and a step can fail; then it retreats once.
 */
export abstract class OperatorRun<Step, Prepared> {
  state: 'running' | 'stopped' | 'ended' = 'running';
  readonly #world: OperatorWorld;
  readonly #name: string;
  #steps: Iterator<Step, unknown, void> | undefined;
  #isRetreating = false;
  #isConnected = true;
  readonly #delayed: (() => void)[] = [];

  constructor(world: OperatorWorld, name: string) {
    this.#world = world;
    this.#name = name;
  }

  /** How long a step takes in ms, and what it takes from its beginning to its end. */
  protected abstract prepare(step: Step): { ms: number; prepared: Prepared };
  /** Takes a step. @returns `again` while it waits. @throws when it fails */
  protected abstract take(step: Step, prepared: Prepared): 'again' | undefined;
  /** Returns the steps of the retreat after a step has failed; undefined when another run has taken over. */
  protected abstract retreat(): Iterator<Step, unknown, void> | undefined;
  /** Lets other runs have the locks of this one. */
  protected abstract unlock(): void;
  protected abstract describe(step: Step): string;

  kill(): void {
    this.state = 'ended';
    this.unlock();
  }

  /** Stops for some time. The server may take it for dead meanwhile. */
  stop(): void {
    const { random, scheduler, trace } = this.#world;
    trace(() => `stop ${this.#name}`);
    this.state = 'stopped';
    if (random.chance(0.7)) this.disconnect();
    scheduler.after(random.between(50, 4_000), () => {
      if (this.state === 'stopped') this.continue();
    });
  }

  continue(): void {
    this.state = 'running';
    for (const event of this.#delayed.splice(0)) this.#deliver(event);
  }

  /** The server ends its connection to the control database, and with it the locks. The run does not notice. */
  disconnect(): void {
    this.#isConnected = false;
    this.unlock();
  }

  /** True while its connection to the control database works, and with it its locks. */
  protected get isConnected(): boolean {
    return this.#isConnected;
  }

  /** @throws when the connection to the control database is lost */
  protected requireControl(): void {
    if (!this.#isConnected) throw new Error('the connection to the control database is lost');
  }

  protected begin(steps: Iterator<Step, unknown, void>): void {
    this.#steps = steps;
    this.#next();
  }

  #deliver(event: () => void): void {
    if (this.state === 'running') event();
    else if (this.state === 'stopped') this.#delayed.push(event);
  }

  #next(): void {
    const next = this.#steps?.next();
    if (!next || next.done) {
      this.kill();
      return;
    }
    const { scheduler, random, isCalm } = this.#world;
    const step = next.value;
    const { ms, prepared } = this.prepare(step);
    const fails = !isCalm && random.chance(0.02);
    // Faults at random times would rarely meet the short steps.
    if (!isCalm && random.chance(0.04)) this.stop();
    scheduler.after(ms, () => this.#deliver(() => this.#try(step, prepared, fails)));
  }

  #try(step: Step, prepared: Prepared, fails = false): void {
    const { scheduler, trace } = this.#world;
    try {
      if (fails) throw new Error('the step fails');
      if (this.take(step, prepared) === 'again') {
        scheduler.after(5, () => this.#deliver(() => this.#try(step, prepared)));
        return;
      }
      trace(() => `${this.#name}: ${this.describe(step)}`);
    } catch (error) {
      if ((error as Error).name === 'Violation') throw error;
      trace(() => `${this.#name}: ${this.describe(step)} fails: ${(error as Error).message}`);
      const steps = this.#isRetreating ? undefined : this.retreat();
      if (!steps) {
        this.kill();
        return;
      }
      this.#isRetreating = true;
      this.#steps = steps;
    }
    this.#next();
  }
}
