import {
  type DatabaseGoal,
  type DatabaseStep,
  databaseProtocol,
} from '../../../src/operator/databases/protocol/database-protocol.ts';
import { violation } from '../violation.ts';
import { controlEffects, databaseEffects, type RunState } from './database-steps.ts';
import type { DatabaseServer, DatabaseWorld, TenantDatabase } from './database-world.ts';

/** The request of an operator. */
export interface DatabaseOrder {
  readonly goal: DatabaseGoal;
  /** The database to which the run switches, or which the run drops. */
  readonly target: TenantDatabase | undefined;
  /** The server on which the run makes a new database. */
  readonly server: DatabaseServer | undefined;
}

/** The values that a step takes from its beginning to its end. */
interface BegunStep {
  readonly step: DatabaseStep;
  /** The rows that a copy copies. */
  readonly snapshot: Set<number>;
  readonly mayBegin: boolean;
}

/** A copy contains what was committed when it began. */
const copies: readonly DatabaseStep[] = ['fill', 'copy ahead', 'copy changes'];
/** The steps that begin with a check whether the target is still reserved. */
const beginsInControl: readonly DatabaseStep[] = ['create', 'fill'];
/** The steps that end with a check whether the run still holds its lock. */
const endsInControl: readonly DatabaseStep[] = ['require lost', 'open current'];
const longSteps: readonly DatabaseStep[] = [...copies, 'create', 'upgrade target'];

/**
 * A run of the command line that works on the databases of the tenant. It can be killed,
 * stopped and continued, lose its connection to the control database, and a step can fail; then
 * it gives up, once.
 */
export class DatabaseRun {
  state: 'running' | 'stopped' | 'ended' = 'running';
  /** True when the run has taken all steps to its goal. */
  hasSucceeded = false;
  readonly #world: DatabaseWorld;
  readonly #run: RunState;
  #steps: Iterator<DatabaseStep, void, void>;
  #isGivingUp = false;
  /** True while the run's connection to the control database works, and with it its lock. */
  #isConnected = true;
  readonly #delayed: (() => void)[] = [];

  /** Holds the lock of the tenant from now on. */
  constructor(
    world: DatabaseWorld,
    { goal, target, server = world.control.current.server }: DatabaseOrder,
  ) {
    const { control } = world;
    const epoch = ++world.epochs;
    this.#world = world;
    this.#run = {
      world,
      goal,
      epoch,
      server,
      target,
      current: control.current,
      former: undefined,
      hasCopied: false,
      hasWebhooks: false,
      waitUntil: 0,
    };
    control.lockedBy = this;
    const to = target ? `${target.state} ${target.name}` : server.name;
    this.#trace(`${goal} (${to}); the tenant has ${control.current.name}, fence ${control.fence}`);
    this.#steps = this.#stepsToGoal();
    this.#next();
  }

  kill(): void {
    this.state = 'ended';
    this.#unlock();
  }

  /** Stops for some time. The server may take it for dead meanwhile. */
  stop(): void {
    const { random, scheduler, trace } = this.#world;
    trace(() => `stop run ${this.#run.epoch}`);
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

  /**
   * The server ends its connection to the control database, and with it its lock. The run does
   * not notice.
   */
  disconnect(): void {
    this.#isConnected = false;
    this.#unlock();
  }

  #unlock(): void {
    if (this.#world.control.lockedBy === this) this.#world.control.lockedBy = undefined;
  }

  *#stepsToGoal(): Generator<DatabaseStep, void, void> {
    const { goal, world } = this.#run;
    yield* databaseProtocol(goal, world.control.fence !== 'none');
    this.hasSucceeded = true;
    if (this.#isConnected) this.#checkEnd();
    if (goal !== 'provision') yield 'drop leftovers'; // those whose servers answer
  }

  #checkEnd(): void {
    const { control, isCalm } = this.#world;
    const { goal, target } = this.#run;
    if (control.fence !== 'none') violation(`a run to ${goal} leaves a fence`);
    const isPlacing =
      goal === 'provision' || goal === 'place' || goal === 'move' || goal === 'replace';
    if (isPlacing) this.#checkNoneReserved(goal);
    // A paused run may create it again, with names that nobody uses any more.
    if (goal === 'place' && target?.state !== 'filled') {
      violation('a run to place does not complete its database');
    }
    if (goal === 'upgrade' && target?.isOutdated) {
      violation('a run to upgrade leaves its database at another version');
    }
    if (goal === 'drop' && (target?.state !== 'gone' || (target.exists && isCalm))) {
      violation('a run to drop leaves its database');
    }
  }

  #checkNoneReserved(goal: DatabaseGoal): void {
    if (this.#world.control.databases.some(({ state }) => state === 'reserved')) {
      violation(`a run to ${goal} leaves a reserved database`);
    }
  }

  /** Returns the steps after one has failed; undefined when another run has taken over. */
  #stepsToGiveUp(): Iterator<DatabaseStep, void, void> | undefined {
    const { control } = this.#world;
    if (this.#isGivingUp || !this.#isConnected) return undefined;
    this.#run.current = control.current;
    return databaseProtocol('give up', control.fence !== 'none');
  }

  #deliver(event: () => void): void {
    if (this.state === 'running') event();
    else if (this.state === 'stopped') this.#delayed.push(event);
  }

  #next(): void {
    const next = this.#steps.next();
    if (next.done) {
      if (this.#isGivingUp && this.#isConnected) this.#checkNoneReserved('give up');
      this.kill();
      return;
    }

    const { scheduler, random, isCalm } = this.#world;
    const { goal, current, epoch, target } = this.#run;
    const step = next.value;
    const ms = longSteps.includes(step) ? random.between(20, 400) : random.between(0.5, 10);

    const mayBegin =
      !beginsInControl.includes(step) || (this.#isConnected && target?.state === 'reserved');
    const isOfArchive = step === 'fill' && goal !== 'move';
    const snapshot = isOfArchive
      ? new Set([-epoch])
      : copies.includes(step)
        ? new Set(current.rows)
        : current.rows;

    const fails = !isCalm && random.chance(0.02);
    // Faults at random times would rarely meet the short steps.
    if (!isCalm && random.chance(0.04)) this.stop();

    scheduler.after(ms, () => this.#deliver(() => this.#try({ step, snapshot, mayBegin }, fails)));
  }

  #try(begun: BegunStep, fails = false): void {
    const { step } = begun;
    try {
      if (fails) throw new Error('the step fails');
      if (this.#take(begun) === 'again') {
        this.#world.scheduler.after(5, () => this.#deliver(() => this.#try(begun)));
        return;
      }

      this.#trace(step);
    } catch (error) {
      if ((error as Error).name === 'Violation') throw error;
      this.#trace(`${step} fails: ${(error as Error).message}`);

      const steps = this.#stepsToGiveUp();
      if (!steps) {
        this.kill();
        return;
      }

      this.#isGivingUp = true;
      this.#steps = steps;
    }

    this.#next();
  }

  /**
   * @returns `again` while the step waits
   * @throws when it fails
   */
  #take({ step, snapshot, mayBegin }: BegunStep): 'again' | undefined {
    const { control, random, isCalm } = this.#world;
    if (!mayBegin) throw new Error('the target is not reserved any more');
    const inControl = controlEffects[step];
    const needsLock = inControl || endsInControl.includes(step);
    if (needsLock && !this.#isConnected) {
      throw new Error('the connection to the control database is lost');
    }
    const result = (inControl ?? databaseEffects[step])?.(this.#run, snapshot);
    if (result === 'again') return 'again';
    this.#world.check();
    if (!isCalm && random.chance(0.01)) throw new Error('its result is lost');
    if (step === 'exchange') this.#run.current = control.current;
    return undefined;
  }

  #trace(text: string): void {
    this.#world.trace(() => `run ${this.#run.epoch}: ${text}`);
  }
}
