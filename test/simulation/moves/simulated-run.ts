import { type MoveGoal, type MoveStep, moveProtocol } from '../../../src/operator/move/move-protocol.ts';
import { OperatorRun } from '../operator-run.ts';
import type { MoveWorld } from './move-world.ts';
import type { SimulatedMove } from './simulated-moves.ts';

const maxAnnounceMs = 10_000;

/** A run of the command line that works on a move. */
export class SimulatedRun extends OperatorRun<MoveStep, Set<number>> {
  readonly #world: MoveWorld;
  readonly #move: SimulatedMove;
  readonly #epoch: number;
  #copied = false;
  #waitUntil = 0;

  /** Holds the lock of the tenant from now on. */
  constructor(world: MoveWorld, move: SimulatedMove, goal: MoveGoal) {
    const epoch = ++world.epochs;
    super(world, `run ${epoch}`);
    this.#world = world;
    this.#move = move;
    world.control.lockedBy = this;
    this.#epoch = move.epoch = epoch;
    world.trace(() => `run ${epoch} takes ${move.state} over, to ${goal}`);
    this.begin(this.#stepsTo(goal));
  }

  #stepsTo(goal: MoveGoal): Iterator<MoveStep, unknown, void> {
    return moveProtocol({ state: this.#move.state, hasFence: this.#world.control.fence !== 'none' }, goal);
  }

  protected override retreat(): Iterator<MoveStep, unknown, void> | undefined {
    const isReplaced = !this.isConnected || this.#move.epoch !== this.#epoch;
    return isReplaced ? undefined : this.#stepsTo('retreat');
  }

  protected override unlock(): void {
    if (this.#world.control.lockedBy === this) this.#world.control.lockedBy = undefined;
  }

  protected override describe(step: MoveStep): string {
    return step.kind === 'enter' ? `enter ${step.to}` : step.kind;
  }

  /** A copy contains what was committed when it began. */
  protected override prepare({ kind }: MoveStep): { ms: number; prepared: Set<number> } {
    const { random } = this.#world;
    const source = this.#move.from.rows;
    const isCopy = kind === 'copy' || kind === 'copy changes';
    const prepared = isCopy ? new Set(source) : source;
    return { ms: isCopy ? random.between(20, 400) : random.between(0.5, 10), prepared };
  }

  protected override take(step: MoveStep, snapshot: Set<number>): 'again' | undefined {
    const { control, processes, scheduler } = this.#world;
    const { from, to } = this.#move;
    const epoch = this.#epoch;
    switch (step.kind) {
      case 'enter':
        this.requireControl();
        control.enter(this.#move, epoch, step);
        if (step.to === 'fenced') this.#waitUntil = scheduler.now + 2_000;
        return undefined;
      case 'claim source':
        return from.claim(epoch);
      case 'claim target':
        return to.claim(epoch);
      case 'create target':
        to.reach();
        to.exists = true;
        return undefined;
      case 'announce fence':
        this.requireControl();
        if (control.fence === 'none') {
          control.announce();
          this.#waitUntil = scheduler.now + maxAnnounceMs;
        }
        if (control.isConfirmedBy(processes)) return undefined;
        if (scheduler.now > this.#waitUntil) throw new Error('a process does not confirm the fence');
        return 'again';
      case 'lift fence':
        this.requireControl();
        control.lift();
        return undefined;
      case 'copy':
        from.reach();
        to.guard(epoch);
        to.rows = snapshot;
        this.#copied = true;
        return undefined;
      case 'wait for processes':
        this.requireControl();
        return control.isConfirmedBy(processes) || scheduler.now >= this.#waitUntil ? undefined : 'again';
      case 'close source':
        return from.open(epoch, false);
      case 'end sessions':
        from.reach();
        from.endSessions();
        return undefined;
      case 'copy changes':
        if (!this.#copied) throw new Error('nothing has been copied');
        from.reach();
        to.guard(epoch);
        to.rows = snapshot;
        return undefined;
      case 'open target':
        return to.open(epoch, true);
      case 'reopen source':
        return from.open(epoch, true);
      case 'drop target':
      case 'drop source': {
        const database = step.kind === 'drop target' ? to : from;
        if (database === control.current) this.#world.fail(`${database.name} is dropped and in use`);
        database.reach();
        database.exists = false;
        database.endSessions();
        return undefined;
      }
    }
  }
}
