import type { RestoreGoal } from '../../../src/operator/restore/restore-protocol.ts';
import { createFencedWorld } from '../fenced-world.ts';
import { ServingProcess } from '../serving-process.ts';
import type { SimulationOptions } from '../simulation-options.ts';
import { violation } from '../violation.ts';
import { locksFor, RestoreRun } from './restore-run.ts';
import { RestoreControl, RestoredDatabase, type RestoreWorld } from './restore-world.ts';

const faultsMs = 15_000;
/** A restore or a swap without faults takes less. */
const calmMs = 6_000;

/**
 * Simulates restores beside a tenant whose processes write all the time: operators restore, swap, swap back and purge,
 * two of them at once; their runs and the processes are killed, paused over any step, and cut off from the control
 * database, which goes away. Then each command runs once without faults. The same seed gives the same run.
 * @throws {Violation} when an invariant is broken
 */
export function simulateRestores(options: SimulationOptions): void {
  new RestoreSimulation(options).run();
}

class RestoreSimulation {
  readonly #world: RestoreWorld;
  readonly #processes: ServingProcess<RestoredDatabase>[];
  readonly #runs: RestoreRun[] = [];
  readonly #databases: RestoredDatabase[] = [new RestoredDatabase('database 0', 'tenant')];
  /** Writes that a client knows to be done, with their database. */
  readonly #acknowledged = new Map<number, RestoredDatabase>();

  constructor(options: SimulationOptions) {
    const control = new RestoreControl(this.#databases[0] as RestoredDatabase);
    const world = createFencedWorld<RestoredDatabase, RestoreControl>(control, options);
    this.#processes = world.processes;
    this.#world = {
      ...world,
      acknowledge: (id, database) => {
        if (database !== control.current)
          violation(`write ${id} is acknowledged in a database that the tenant has not`);
        this.#acknowledged.set(id, database);
      },
      epochs: 0,
      newDatabase: () => {
        const database = new RestoredDatabase(`database ${this.#databases.length}`, 'side');
        this.#databases.push(database);
        return database;
      },
    };
  }

  run(): void {
    for (let count = this.#world.random.integer(1, 3); count > 0; count--) this.#startProcess();
    this.#repeat(30, 700, () => this.#operate());
    this.#repeat(20, 700, () => this.#fault());
    this.#repeat(5, 60, () => this.#connectStranger());
    this.#advance(faultsMs);
    this.#calmDown();
    for (const goal of ['retreat', 'none', 'aside', 'swapped', 'aside', 'swapped', 'none'] as const)
      this.#runCalmly(goal);
    this.#checkWrites();
  }

  #startProcess(): void {
    this.#processes.push(new ServingProcess(this.#world, `p${this.#processes.length}`));
  }

  /** Runs `event` at random times until nothing goes wrong any more. */
  #repeat(minMs: number, maxMs: number, event: () => void): void {
    this.#world.scheduler.after(this.#world.random.between(minMs, maxMs), () => {
      if (this.#world.isCalm) return;
      event();
      this.#repeat(minMs, maxMs, event);
    });
  }

  /** Lets an operator run one of the commands. */
  #operate(): void {
    const goals: readonly RestoreGoal[] = ['aside', 'aside', 'aside', 'swapped', 'swapped', 'none'];
    if (!this.#world.control.isAway) this.#start(this.#world.random.pick(goals) ?? 'aside');
  }

  /** Starts a run, unless another one has its locks. */
  #start(goal: RestoreGoal): void {
    const { control } = this.#world;
    const { state } = control.view;
    const hasSide = state === 'aside' || state === 'swapped';
    if (locksFor(goal, hasSide).some(lock => control.locks.has(lock))) return;
    this.#runs.push(new RestoreRun(this.#world, goal));
  }

  #fault(): void {
    const random = this.#world.random;
    const { control, trace } = this.#world;
    const run = random.pick(this.#runs.filter(({ state }) => state !== 'ended'));
    const process = random.pick(this.#processes.filter(({ isDead }) => !isDead));
    const kind = random.integer(0, 8);
    if (kind <= 1 && run) {
      trace(() => 'kill a run');
      run.kill();
    } else if (kind <= 3 && run?.state === 'running') {
      run.stop();
    } else if (kind === 4 && process && this.#processes.length < 6) {
      trace(() => `kill ${process.name}`);
      process.kill();
      this.#startProcess();
    } else if (kind <= 6 && process) {
      trace(() => `stop ${process.name}`);
      process.stop();
      this.#world.scheduler.after(random.between(50, 5_000), () => process.continue());
    } else if (kind === 7 && !control.isAway) {
      trace(() => 'the control database goes away');
      control.isAway = true;
      for (const each of this.#runs) each.disconnect();
      this.#world.scheduler.after(random.between(50, 1_500), () => this.#returnControl());
    }
  }

  #returnControl(): void {
    const { control, trace } = this.#world;
    if (!control.isAway) return;
    trace(() => 'the control database is back');
    control.isAway = false;
    control.onChange();
  }

  /** Somebody uses the side, and writes some time later. */
  #connectStranger(): void {
    const database = this.#world.control.side?.database;
    const session = database?.connectStranger();
    if (!database || !session) return;
    this.#world.scheduler.after(this.#world.random.between(1, 150), () => {
      database.strangers.delete(session);
      if (session.isAlive && database === this.#world.control.current)
        violation(`a session of the side writes to ${database.name} of the tenant`);
    });
  }

  #calmDown(): void {
    this.#world.trace(() => 'calm');
    this.#world.isCalm = true;
    this.#returnControl();
    for (const run of this.#runs)
      if (run.state === 'stopped') {
        run.disconnect();
        run.continue();
      }
    for (const process of this.#processes) process.continue();
    this.#advance(calmMs + 10_000); // an announced fence is waited for so long
    if (this.#world.control.locks.size > 0) violation('a run has not ended');
  }

  /** Without faults, each command leads to its goal, the tenant is served then, and no request fails meanwhile. */
  #runCalmly(goal: RestoreGoal): void {
    const { control } = this.#world;
    if (goal === 'retreat' && (control.view.state === 'none' || control.view.state === 'begun')) return;
    const failed = this.#world.failed;
    this.#start(goal);
    this.#advance(calmMs);
    const { state } = control.view;
    if (goal !== 'retreat' && state !== goal) violation(`a run to ${goal} without faults has led to ${state}`);
    if (!control.current.isOpen || control.fence !== 'none')
      violation(`the tenant is not served after a run to ${goal}`);
    if (goal !== 'retreat' && this.#world.failed > failed)
      violation(`${this.#world.failed - failed} requests failed in a run to ${goal}`);
  }

  /** What was acknowledged is in the database that the tenant had then, unless that was removed with the side. */
  #checkWrites(): void {
    for (const [id, database] of this.#acknowledged)
      if (database.exists && !database.rows.has(id)) violation(`write ${id} is lost`);
  }

  #advance(ms: number): void {
    this.#world.scheduler.runUntil(this.#world.scheduler.now + ms, () => {
      const open = this.#databases.filter(({ isOpen }) => isOpen);
      if (open.length > 1) violation(`${open.map(({ name }) => name).join(' and ')} are open for the tenant`);
      const { fence, current } = this.#world.control;
      if (fence !== 'closed' && !open.includes(current)) violation('requests find the database closed');
    });
  }
}
