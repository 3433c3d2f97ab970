import { type RestoreGoal, type RestoreStep, restoreProtocol } from '../../../src/operator/restore/restore-protocol.ts';
import { OperatorRun } from '../operator-run.ts';
import { end, type LockName, type RestoredDatabase, type RestoreWorld, type Side } from './restore-world.ts';

const maxAnnounceMs = 10_000;

/** Returns the locks that a run to a goal needs. */
export function locksFor(goal: RestoreGoal, hasSide: boolean): readonly LockName[] {
  if (goal === 'none') return ['slug', 'pair'];
  return hasSide ? ['pair'] : ['slug'];
}

/** A run of `restore --to`, `restore swap`, `restore back` or `purge`. */
export class RestoreRun extends OperatorRun<RestoreStep, undefined> {
  readonly #world: RestoreWorld;
  readonly #epoch: number;
  /** The databases of the tenant and of the side, as the run has read them. */
  #database: RestoredDatabase;
  #other: RestoredDatabase | undefined;
  #side: Side | undefined;
  #waitUntil = 0;
  readonly #isSwap: boolean;

  /** Holds the locks from now on. */
  constructor(world: RestoreWorld, goal: RestoreGoal) {
    const { control } = world;
    const epoch = ++world.epochs;
    super(world, `run ${epoch}`);
    this.#world = world;
    this.#epoch = epoch;
    this.#database = control.current;
    this.#read();
    const hasSide = this.#side !== undefined && this.#side.state !== 'begun';
    this.#isSwap = hasSide && goal !== 'none';
    for (const lock of locksFor(goal, hasSide)) control.locks.set(lock, this);
    world.trace(() => `run ${epoch} leads from ${control.view.state} to ${goal}, fence ${control.fence}`);
    this.begin(restoreProtocol(control.view, goal));
  }

  #read(): undefined {
    const { current, side } = this.#world.control;
    this.#database = current;
    this.#side = side;
    this.#other = side?.database;
  }

  protected override retreat(): Iterator<RestoreStep, unknown, void> | undefined {
    const { control } = this.#world;
    if (!this.#isSwap || !this.isConnected || control.isAway) return undefined;
    this.#read();
    return restoreProtocol(control.view, 'retreat');
  }

  protected override unlock(): void {
    const { locks } = this.#world.control;
    for (const [name, holder] of locks) if (holder === this) locks.delete(name);
  }

  protected override describe(step: RestoreStep): string {
    return step;
  }

  protected override prepare(step: RestoreStep): { ms: number; prepared: undefined } {
    const { random } = this.#world;
    const isLong = step === 'fill database' || step === 'create database';
    return { ms: isLong ? random.between(20, 400) : random.between(0.5, 10), prepared: undefined };
  }

  protected override take(step: RestoreStep): 'again' | undefined {
    const { control, processes, scheduler } = this.#world;
    const [epoch, database] = [this.#epoch, this.#database];
    switch (step) {
      case 'announce fence':
        this.#requireControl();
        if (control.fence === 'none') {
          control.announce();
          this.#waitUntil = scheduler.now + maxAnnounceMs;
        } else if (this.#waitUntil === 0) this.#waitUntil = scheduler.now + maxAnnounceMs;
        if (control.isConfirmedBy(processes)) return undefined;
        if (scheduler.now > this.#waitUntil) throw new Error('a process does not confirm the fence');
        return 'again';
      case 'close fence':
        this.#requireControl();
        control.close();
        this.#waitUntil = scheduler.now + 2_000;
        return undefined;
      case 'wait for processes':
        this.#requireControl();
        return control.isConfirmedBy(processes) || scheduler.now >= this.#waitUntil ? undefined : 'again';
      case 'claim databases':
        for (const each of [database, this.#requireOther()]) {
          each.guard(epoch);
          each.claimedBy = epoch;
        }
        return undefined;
      case 'close database':
        return database.give(epoch, 'side', false);
      case 'end sessions':
        return end(database.sessions);
      case 'hand over other database':
        return this.#requireOther().give(epoch, 'tenant', true);
      case 'end other sessions':
        return end(this.#requireOther().strangers);
      case 'exchange databases':
        return this.#exchange();
      case 'open other database':
        return this.#requireOther().give(epoch, 'side', true);
      case 'open database':
        return database.give(epoch, 'tenant', true);
      case 'lift fence':
        this.#requireControl();
        control.lift();
        return undefined;
      default:
        return this.#takeSideStep(step);
    }
  }

  #takeSideStep(step: RestoreStep): undefined {
    const { control, fail } = this.#world;
    const [side, other] = [this.#side, this.#other];
    switch (step) {
      case 'reserve side':
        this.#requireControl();
        if (control.side) throw new Error('there is such a tenant already');
        control.side = { database: this.#world.newDatabase(), state: 'begun', archive: this.#epoch };
        return this.#read();
      case 'create database':
        this.#requireOther().exists = true;
        return undefined;
      case 'fill database': {
        const target = this.#requireOther();
        if (target === control.current) fail(`${target.name} is overwritten while it is used`);
        if (!target.exists) throw new Error('the database is gone');
        target.rows = new Set();
        target.filledFrom = side?.archive;
        return undefined;
      }
      case 'complete side':
        this.#requireControl();
        if (!side || control.side !== side || side.state !== 'begun') throw new Error('the side is gone');
        side.state = 'aside';
        return undefined;
      case 'condemn database':
        return other?.condemn(this.#epoch);
      case 'drop database':
        if (other === control.current) fail(`${other.name} is dropped while the tenant has it`);
        if (other && other.sessions.size > 0) fail(`${other.name} is dropped while it is used`);
        other?.drop();
        return undefined;
      case 'forget tenant':
        this.#requireControl();
        if (control.side !== side) throw new Error('the side is gone');
        control.side = undefined;
        return this.#read();
      default:
        throw new Error(`there is no step ${step}`);
    }
  }

  #exchange(): undefined {
    const { control, fail } = this.#world;
    this.#requireControl();
    const [side, database, other] = [this.#side, this.#database, this.#requireOther()];
    if (!side || control.side !== side) throw new Error('the side is gone');
    if (side.state === 'aside' && other.filledFrom !== side.archive) fail(`${other.name} has not the restored data`);
    [control.current, side.database] = [other, database];
    side.state = side.state === 'aside' ? 'swapped' : 'aside';
    control.lift();
    return this.#read();
  }

  #requireOther(): RestoredDatabase {
    if (!this.#other) throw new Error('there is no side');
    return this.#other;
  }

  #requireControl(): void {
    if (this.#world.control.isAway) throw new Error('the control database cannot be reached');
    this.requireControl();
  }
}
