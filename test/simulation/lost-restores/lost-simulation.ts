import { createFencedWorld } from '../fenced-world.ts';
import { ServingProcess } from '../serving-process.ts';
import type { SimulationOptions } from '../simulation-options.ts';
import { violation } from '../violation.ts';
import { LostRun } from './lost-run.ts';
import { LosableDatabase, LostControl, type LostWorld } from './lost-world.ts';

const faultsMs = 15_000;
/** A restore without faults takes less. */
const calmMs = 6_000;

/**
 * Simulates restores of the database of a tenant that its server loses again and again, while processes write to it:
 * operators run the command, two of them at once; their runs and the processes are killed, paused over any step, and cut
 * off from the control database, which goes away. Then the command runs without faults. The same seed gives the same
 * run.
 * @throws {Violation} when an invariant is broken
 */
export function simulateLostRestores(options: SimulationOptions): void {
  new LostSimulation(options).run();
}

class LostSimulation {
  readonly #world: LostWorld;
  readonly #processes: ServingProcess<LosableDatabase>[];
  readonly #runs: LostRun[] = [];
  readonly #databases: LosableDatabase[] = [];
  /** Writes that a client knows to be done, with their database. */
  readonly #acknowledged = new Map<number, LosableDatabase>();

  constructor(options: SimulationOptions) {
    const first = this.#newDatabase();
    first.exists = true;
    const control = new LostControl(first);
    const world = createFencedWorld<LosableDatabase, LostControl>(control, options);
    this.#processes = world.processes;
    this.#world = {
      ...world,
      acknowledge: (id, database) => {
        if (database !== control.current)
          violation(`write ${id} is acknowledged in ${database.name}, which the tenant has not`);
        this.#acknowledged.set(id, database);
      },
      runs: 0,
      newDatabase: () => this.#newDatabase(),
    };
  }

  run(): void {
    for (let count = this.#world.random.integer(1, 3); count > 0; count--)
      this.#processes.push(new ServingProcess(this.#world, `p${count}`));
    this.#repeat(200, 3_000, () => this.#lose());
    this.#repeat(30, 700, () => this.#operate());
    this.#repeat(20, 700, () => this.#fault());
    this.#advance(faultsMs);
    this.#calmDown();
    for (let count = 0; count < 2; count++) {
      this.#operate();
      this.#advance(calmMs);
      this.#check();
      this.#lose();
    }
  }

  #newDatabase(): LosableDatabase {
    const database = new LosableDatabase(`database ${this.#databases.length}`);
    this.#databases.push(database);
    return database;
  }

  #advance(ms: number): void {
    this.#world.scheduler.runUntil(this.#world.scheduler.now + ms, () => {
      if (this.#world.control.current.exists && this.#world.control.isRestoring) violation('a marked tenant is served');
    });
  }

  /** Runs `event` at random times until nothing goes wrong any more. */
  #repeat(minMs: number, maxMs: number, event: () => void): void {
    this.#world.scheduler.after(this.#world.random.between(minMs, maxMs), () => {
      if (this.#world.isCalm) return;
      event();
      this.#repeat(minMs, maxMs, event);
    });
  }

  /** The server loses the database that is served. */
  #lose(): void {
    const { current } = this.#world.control;
    if (current.exists) this.#world.trace(() => `${current.name} is lost`);
    current.remove();
  }

  /** Lets an operator run the command, unless another run has the lock. */
  #operate(): void {
    const { control } = this.#world;
    if (!control.isAway && !control.holder) this.#runs.push(new LostRun(this.#world));
  }

  #fault(): void {
    const random = this.#world.random;
    const { control, trace } = this.#world;
    const run = random.pick(this.#runs.filter(({ state }) => state !== 'ended'));
    const process = random.pick(this.#processes);
    const kind = random.integer(0, 5);
    if (kind === 0 && run) {
      trace(() => 'kill a run');
      run.kill();
    } else if (kind <= 2 && run?.state === 'running') {
      run.stop();
    } else if (kind === 3 && process) {
      trace(() => `stop ${process.name}`);
      process.stop();
      this.#world.scheduler.after(random.between(50, 5_000), () => process.continue());
    } else if (kind === 4 && !control.isAway) {
      trace(() => 'the control database goes away');
      control.isAway = true;
      for (const each of this.#runs) each.disconnect();
      this.#world.scheduler.after(random.between(50, 1_500), () => this.#returnControl());
    }
  }

  #returnControl(): void {
    this.#world.control.isAway = false;
    this.#world.control.onChange();
  }

  #calmDown(): void {
    this.#world.trace(() => 'calm');
    this.#world.isCalm = true;
    this.#returnControl();
    for (const run of this.#runs) {
      run.disconnect();
      if (run.state === 'stopped') run.continue();
    }
    for (const process of this.#processes) process.continue();
    this.#advance(calmMs);
    if (this.#world.control.holder) violation('a run has not ended');
  }

  /** After a run without faults, the tenant is served, with every write since, and nothing else is left. */
  #check(): void {
    const { current, isRestoring } = this.#world.control;
    if (!current.exists || isRestoring) violation('the tenant is not served after a restore without faults');
    for (const database of this.#databases)
      if (database.exists && database !== current && !database.isOrphan) violation(`${database.name} is left`);
    for (const [id, database] of this.#acknowledged)
      if (database === current && !database.rows.has(id)) violation(`write ${id} is lost`);
  }
}
