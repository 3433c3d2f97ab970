import { isAtEnd, type MoveGoal } from '../../../src/operator/move/move-protocol.ts';
import { createFencedWorld } from '../fenced-world.ts';
import { ServingProcess } from '../serving-process.ts';
import type { SimulationOptions } from '../simulation-options.ts';
import type { MoveWorld } from './move-world.ts';
import { SimulatedDatabase } from './simulated-databases.ts';
import { SimulatedControl, type SimulatedMove } from './simulated-moves.ts';
import { SimulatedRun } from './simulated-run.ts';

const faultsMs = 20_000;
/** A move without faults takes less. */
const moveMs = 15_000;

/**
 * Simulates moves of a tenant whose processes write all the time: first runs that are killed, stopped, cut off from the
 * control database or fail, and are taken up by other runs, while servers die and come back; then a run while only the
 * server is there that the tenant has; then one move without faults. The same seed gives the same run.
 * @throws {Violation} when an invariant is broken
 */
export function simulateMoves(options: SimulationOptions): void {
  new MoveSimulation(options).run();
}

class MoveSimulation {
  readonly #world: MoveWorld;
  readonly #processes: ServingProcess<SimulatedDatabase>[];
  /** Writes that a client knows to be done. */
  readonly #acknowledged = new Set<number>();
  readonly #runs: SimulatedRun[] = [];
  readonly #databases: SimulatedDatabase[] = [];

  constructor(options: SimulationOptions) {
    const world = createFencedWorld<SimulatedDatabase, SimulatedControl>(
      new SimulatedControl(this.#database(true)),
      options,
    );
    this.#processes = world.processes;
    this.#world = {
      ...world,
      acknowledge: id => void this.#acknowledged.add(id),
      epochs: 0,
    };
  }

  run(): void {
    for (let count = this.#world.random.integer(1, 3); count > 0; count--) this.#startProcess();
    this.#operate();
    this.#scheduleFault();
    this.#advance(faultsMs);
    this.#calmDown();
    this.#finish();
    this.#checkCalmMove();
    this.#checkWrites();
  }

  #database(isOpen: boolean): SimulatedDatabase {
    const database = new SimulatedDatabase(`database ${this.#databases.length}`, isOpen);
    this.#databases.push(database);
    return database;
  }

  #startProcess(): void {
    this.#processes.push(new ServingProcess(this.#world, `p${this.#processes.length}`));
  }

  /** Lets an operator begin, resume, settle or abort a move whenever nobody works on the tenant. */
  #operate(): void {
    this.#world.scheduler.after(this.#world.random.between(50, 1_500), () => {
      if (this.#world.isCalm) return;
      if (!this.#world.control.lockedBy) this.#startRun(this.#world.random.chance(0.15) ? 'abort' : 'switch');
      this.#operate();
    });
  }

  #startRun(goal: MoveGoal): void {
    const { control } = this.#world;
    const unfinished = control.moves.find(
      ({ state }) => !isAtEnd(state) && state !== 'switched' && state !== 'settling',
    );
    const switched = control.moves.find(({ state }) => state === 'switched' || state === 'settling');
    if (unfinished) this.#runs.push(new SimulatedRun(this.#world, unfinished, goal));
    else if (switched && this.#world.random.chance(0.5))
      this.#runs.push(new SimulatedRun(this.#world, switched, 'settle'));
    else this.#runs.push(new SimulatedRun(this.#world, this.#newMove(), 'switch'));
  }

  #newMove(): SimulatedMove {
    const { control } = this.#world;
    const to = this.#database(false);
    to.exists = false;
    const move: SimulatedMove = { state: 'planned', epoch: 0, from: control.current, to };
    control.moves.push(move);
    return move;
  }

  #scheduleFault(): void {
    this.#world.scheduler.after(this.#world.random.between(20, 800), () => {
      if (this.#world.isCalm) return;
      this.#fault();
      this.#scheduleFault();
    });
  }

  #fault(): void {
    const random = this.#world.random;
    const run = this.#runs.findLast(({ state }) => state !== 'ended');
    const process = random.pick(this.#processes.filter(({ isDead }) => !isDead));
    const kind = random.integer(0, 7);
    if (kind <= 1 && run) {
      this.#world.trace(() => 'kill the run');
      run.kill();
    } else if (kind <= 3 && run?.state === 'running') {
      run.stop();
    } else if (kind === 4 && process && this.#processes.length < 6) {
      this.#world.trace(() => `kill ${process.name}`);
      process.kill();
      this.#startProcess();
    } else if (kind === 5 && process) {
      this.#world.trace(() => `stop ${process.name}`);
      process.stop();
      this.#world.scheduler.after(random.between(50, 5_000), () => process.continue());
    } else if (kind >= 6) {
      this.#crash(random.pick(this.#databases.slice(-2)));
    }
  }

  #crash(database: SimulatedDatabase | undefined): void {
    if (!database || database.isAway) return;
    const { random, scheduler, trace } = this.#world;
    trace(() => `${database.name} is away`);
    database.setAway(true);
    scheduler.after(random.between(50, 5_000), () => this.#bringBack(database));
  }

  /** From the calm on, a server that the tenant does not have stays away. */
  #bringBack(database: SimulatedDatabase): void {
    const { isCalm, control, trace } = this.#world;
    if (!database.isAway || (isCalm && database !== control.current)) return;
    trace(() => `${database.name} is back`);
    database.setAway(false);
  }

  #calmDown(): void {
    this.#world.trace(() => 'calm');
    this.#world.isCalm = true;
    for (const run of this.#runs) {
      if (run.state === 'stopped') run.disconnect();
      if (run.state === 'stopped') run.continue();
    }
    for (const process of this.#processes) process.continue();
    const { control, random } = this.#world;
    for (const database of this.#databases.slice(-2))
      if (database !== control.current && random.chance(0.5)) database.setAway(true);
    this.#bringBack(control.current);
    this.#advance(moveMs);
  }

  /** An operator resumes what is unfinished: first while only the server is there that the tenant has, then again. */
  #finish(): void {
    this.#bringBack(this.#world.control.current); // a run that has ended in the calm may have switched it
    this.#resume();
    for (const database of this.#databases) database.setAway(false);
    this.#resume();
  }

  #resume(): void {
    const { control } = this.#world;
    if (control.lockedBy) this.#world.fail('a run has not ended');
    const unfinished = control.moves.find(
      ({ state }) => !isAtEnd(state) && state !== 'switched' && state !== 'settling',
    );
    if (unfinished) this.#runs.push(new SimulatedRun(this.#world, unfinished, 'switch'));
    this.#advance(moveMs);
    if (!control.current.isOpen || !control.current.exists || control.fence === 'closed')
      this.#world.fail('the tenant is not served after all runs have ended');
  }

  /** Without faults, no request fails, and the tenant is in the new database afterwards. */
  #checkCalmMove(): void {
    const failed = this.#world.failed;
    const move = this.#newMove();
    this.#runs.push(new SimulatedRun(this.#world, move, 'switch'));
    this.#advance(moveMs);
    if (this.#world.control.current !== move.to) this.#world.fail('a move without faults has failed');
    if (this.#world.failed > failed) this.#world.fail(`${this.#world.failed - failed} requests failed during a move`);
  }

  #checkWrites(): void {
    const { current } = this.#world.control;
    for (const id of this.#acknowledged) if (!current.rows.has(id)) this.#world.fail(`write ${id} is lost`);
  }

  #advance(ms: number): void {
    this.#world.scheduler.runUntil(this.#world.scheduler.now + ms, () => {
      const open = this.#databases.filter(({ isOpen, exists }) => isOpen && exists);
      if (open.length > 1) this.#world.fail(`${open.map(({ name }) => name).join(' and ')} are open`);
      const { fence, current } = this.#world.control;
      if (fence !== 'closed' && !open.includes(current)) this.#world.fail('requests find the database closed');
    });
  }
}
