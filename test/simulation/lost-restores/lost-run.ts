import { type LostStep, lostSteps } from '../../../src/operator/restore/lost/lost-protocol.ts';
import { OperatorRun } from '../operator-run.ts';
import type { LosableDatabase, LostWorld } from './lost-world.ts';

/** A run of `restore --lost`, with data of its own. */
export class LostRun extends OperatorRun<LostStep, undefined> {
  readonly #world: LostWorld;
  readonly #number: number;
  /** Whether the tenant was marked when the run got its lock, and the database that it had. */
  readonly #wasRestoring: boolean;
  readonly #found: LosableDatabase;
  #database: LosableDatabase;

  /** Holds the lock from now on. */
  constructor(world: LostWorld) {
    const { control } = world;
    const number = ++world.runs;
    super(world, `run ${number}`);
    this.#world = world;
    this.#number = number;
    this.#wasRestoring = control.isRestoring;
    this.#found = control.named;
    this.#database = control.named;
    control.holder = this;
    world.trace(() => `run ${number} finds ${this.#found.name}${this.#wasRestoring ? ', marked' : ''}`);
    // A database that exists is left as it is.
    if (this.#found.exists && !this.#wasRestoring) this.kill();
    else this.begin(lostSteps.values());
  }

  protected override retreat(): undefined {
    return undefined;
  }

  protected override unlock(): void {
    const { control } = this.#world;
    if (control.holder === this) control.holder = undefined;
  }

  protected override describe(step: LostStep): string {
    return step;
  }

  protected override prepare(step: LostStep): { ms: number; prepared: undefined } {
    const { random } = this.#world;
    const isLong = step === 'fill database' || step === 'create database';
    return { ms: isLong ? random.between(20, 400) : random.between(0.5, 10), prepared: undefined };
  }

  protected override take(step: LostStep): undefined {
    const { control, fail } = this.#world;
    switch (step) {
      case 'remove remains': {
        const remains = this.#found;
        if (!this.#wasRestoring) return;
        if (remains === control.current) fail(`${remains.name} is dropped while it is served`);
        return remains.remove();
      }
      case 'take out of service':
        this.#requireControl();
        if (control.current.exists) fail(`${control.current.name} is served, and replaced`);
        this.#database = this.#world.newDatabase();
        return control.mark(this.#database);
      case 'create database':
        this.#database.exists = true;
        this.#database.isOrphan = !this.isConnected;
        return;
      case 'fill database':
        if (!this.#database.exists) throw new Error('the database is gone');
        if (this.#database === control.current) fail(`${this.#database.name} is overwritten while it is served`);
        this.#database.rows = new Set();
        this.#database.filledBy = this.#number;
        return;
      case 'serve':
        this.#requireControl();
        if (control.named !== this.#database) throw new Error('another run restores the tenant');
        if (this.#database.filledBy !== this.#number) fail(`${this.#database.name} has not the data of its run`);
        return control.serve();
      default:
        throw new Error(`there is no step ${step}`);
    }
  }

  #requireControl(): void {
    if (this.#world.control.isAway) throw new Error('the control database cannot be reached');
    this.requireControl();
  }
}
