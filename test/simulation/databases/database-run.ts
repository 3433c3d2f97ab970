import {
  type DatabaseGoal,
  type DatabaseStep,
  databaseProtocol,
} from '../../../src/operator/databases/database-protocol.ts';
import { OperatorRun } from '../operator-run.ts';
import { controlEffects, databaseEffects, type RunState } from './database-steps.ts';
import type { DatabaseServer, DatabaseWorld, TenantDatabase } from './database-world.ts';

/** What an operator asks for. */
export interface DatabaseOrder {
  readonly goal: DatabaseGoal;
  /** What the run switches to, or drops. */
  readonly target: TenantDatabase | undefined;
  /** Where it makes a new one. */
  readonly server: DatabaseServer | undefined;
}

/** A copy contains what was committed when it began. */
const copies: readonly DatabaseStep[] = ['fill', 'copy ahead', 'copy changes'];
/** They begin with a look whether the target is still reserved. */
const beginsInControl: readonly DatabaseStep[] = ['create', 'fill'];
const longSteps: readonly DatabaseStep[] = [...copies, 'create', 'upgrade target'];

/** A run of the command line that works on the databases of the tenant. */
export class DatabaseRun extends OperatorRun<DatabaseStep, Set<number>> {
  /** True when it has taken all steps to its goal. */
  hasSucceeded = false;
  #mayBegin = true;
  readonly #world: DatabaseWorld;
  readonly #run: RunState;

  /** Holds the lock of the tenant from now on. */
  constructor(world: DatabaseWorld, { goal, target, server = world.control.current.server }: DatabaseOrder) {
    const { control } = world;
    const epoch = ++world.epochs;
    super(world, `run ${epoch}`);
    this.#world = world;
    this.#run = { world, goal, epoch, server, target, current: control.current, hasCopied: false, waitUntil: 0 };
    control.lockedBy = this;
    const to = target ? `${target.state} ${target.name}` : server.name;
    world.trace(() => `run ${epoch}: ${goal} (${to}); the tenant has ${control.current.name}, fence ${control.fence}`);
    this.begin(this.#steps());
  }

  *#steps(): Generator<DatabaseStep, void, void> {
    const { goal, world } = this.#run;
    yield* databaseProtocol({ hasFence: world.control.fence !== 'none' }, goal);
    this.hasSucceeded = true;
    if (this.isConnected) this.#checkEnd();
    if (goal !== 'provision') yield 'drop leftovers'; // those whose servers answer
  }

  #checkEnd(): void {
    const { control, fail } = this.#world;
    const { goal, target } = this.#run;
    if (control.fence !== 'none') fail(`a run to ${goal} leaves a fence`);
    const isPlacing = goal === 'provision' || goal === 'place' || goal === 'move' || goal === 'replace';
    if (isPlacing && control.databases.some(({ state }) => state === 'reserved'))
      fail(`a run to ${goal} leaves a reserved database`);
    // A paused run may create it again, with names that nobody uses any more.
    if (goal === 'place' && target?.state !== 'filled') fail('a run to place does not complete its database');
    if (goal === 'upgrade' && target?.isOutdated) fail('a run to upgrade leaves its database at another version');
    if (goal === 'drop' && (target?.state !== 'gone' || (target.exists && this.#world.isCalm)))
      fail('a run to drop leaves its database');
  }

  protected override retreat(): Iterator<DatabaseStep, unknown, void> | undefined {
    const { control } = this.#world;
    if (!this.isConnected || control.fence === 'none') return undefined;
    this.#run.current = control.current;
    return databaseProtocol({ hasFence: true }, 'retreat');
  }

  protected override unlock(): void {
    if (this.#world.control.lockedBy === this) this.#world.control.lockedBy = undefined;
  }

  protected override describe(step: DatabaseStep): string {
    return step;
  }

  protected override prepare(step: DatabaseStep): { ms: number; prepared: Set<number> } {
    const { world, goal, current, epoch } = this.#run;
    const ms = longSteps.includes(step) ? world.random.between(20, 400) : world.random.between(0.5, 10);
    this.#mayBegin = !beginsInControl.includes(step) || (this.isConnected && this.#run.target?.state === 'reserved');
    if (!copies.includes(step)) return { ms, prepared: current.rows };
    const isOfArchive = step === 'fill' && goal !== 'move';
    return { ms, prepared: isOfArchive ? new Set([-epoch]) : new Set(current.rows) };
  }

  protected override take(step: DatabaseStep, snapshot: Set<number>): 'again' | undefined {
    const { control, random, isCalm } = this.#world;
    if (!this.#mayBegin) throw new Error('the target is not reserved any more');
    const inControl = controlEffects[step];
    if (inControl) this.requireControl();
    const result = (inControl ?? databaseEffects[step])?.(this.#run, snapshot);
    if (result === 'again') return 'again';
    this.#world.check();
    if (!isCalm && random.chance(0.01)) throw new Error('its result is lost');
    if (step === 'exchange') this.#run.current = control.current;
    return undefined;
  }
}
