import type { DatabaseGoal } from '../../../src/operator/databases/protocol/database-protocol.ts';
import { Random } from '../random.ts';
import { Scheduler } from '../scheduler.ts';
import type { SimulationOptions } from '../simulation-options.ts';
import { violation } from '../violation.ts';
import {
  bringControlBack,
  causeFault,
  type FaultyWorld,
  loseCurrent,
  startProcess,
  takeAway,
} from './database-faults.ts';
import { DatabaseRun } from './database-run.ts';
import { DatabasesControl, type TenantDatabase } from './database-world.ts';

const faultsMs = 25_000;
/**
 * Runs and requests that have begun with faults end in that time, and so does a run without
 * faults.
 */
const calmMs = 7_000;

const goals: readonly DatabaseGoal[] = [
  ...([
    'place',
    'place',
    'move',
    'move',
    'move',
    'move',
    'switch',
    'switch',
    'switch',
    'switch',
  ] as const),
  ...(['upgrade', 'drop', 'retreat', 'retreat', 'replace'] as const),
];
/** The goals of commands while the control database names a former database. */
const goalsOfEarlier: readonly DatabaseGoal[] = ['adopt', 'adopt', 'retreat'];
const goalsOfEarlierLost: readonly DatabaseGoal[] = ['adopt for lost', 'retreat'];
const goalsOfLost: readonly DatabaseGoal[] = ['replace', 'replace', 'place', 'retreat'];

/**
 * Simulates the databases of a tenant whose processes write all the time: operators provision,
 * place, move, switch, replace, upgrade and drop; their runs and the processes are killed,
 * paused over any step, and cut off from the control database, which goes away, as servers do;
 * a server loses the database of the tenant, and finds it again; the control database loses its
 * last exchange, and an operator puts the newer database in place. Then a run retreats while
 * only the server is there that the tenant needs, and each command runs once without faults.
 * The same seed gives the same run.
 * @throws {Violation} when an invariant is broken
 */
export function simulateDatabases(options: SimulationOptions): void {
  new DatabaseSimulation(options).run();
}

class DatabaseSimulation {
  readonly #world: FaultyWorld;
  /** Writes that a client knows to be done, with their database. */
  readonly #acknowledged = new Map<number, TenantDatabase>();
  /** The numbers that sequences of the tenant have given. */
  readonly #given = new Set<number>();

  constructor({ seed, trace }: SimulationOptions) {
    const [scheduler, random, control] = [
      new Scheduler(),
      new Random(seed),
      new DatabasesControl(),
    ];
    const servers = ['a', 'b', 'c'].slice(0, random.integer(2, 3));

    this.#world = {
      scheduler,
      random,
      control,
      processes: [],
      isCalm: true,
      failed: 0,
      writes: 0,
      trace: line => void trace?.push(`${scheduler.now.toFixed(3)} ${line()}`),
      giveNumber: database => {
        const number = ++database.lastNumber;
        if (this.#given.has(number)) violation(`${database.name} gives number ${number} again`);
        this.#given.add(number);
      },
      acknowledge: (id, database) => {
        if (database !== (control.newer ?? control.current)) {
          violation(`write ${id} is acknowledged in ${database.name}`);
        }
        this.#acknowledged.set(id, database);
      },
      epochs: 0,
      runs: [],
      servers: servers.map(name => ({ name, isAway: false })),
      startServing: () => {
        for (let count = random.integer(1, 3); count > 0; count--) startProcess(this.#world);
      },
      check: () => check(control),
    };

    control.onChange = () => {
      for (const process of this.#world.processes) process.notify();
    };
  }

  run(): void {
    if (this.#world.random.chance(0.8)) this.#runCalmly('provision');
    this.#world.isCalm = false;
    this.#repeat(30, 700, () => this.#operate());
    this.#repeat(100, 2_500, () => causeFault(this.#world));
    this.#advance(faultsMs);
    this.#calmDown();
    this.#runEachGoal();
    for (const [id, database] of this.#acknowledged) {
      if (!database.rows.has(id)) violation(`write ${id} is lost`);
    }
  }

  /** Runs `event` at random times until nothing goes wrong any more. */
  #repeat(minMs: number, maxMs: number, event: () => void): void {
    this.#world.scheduler.after(this.#world.random.between(minMs, maxMs), () => {
      if (this.#world.isCalm) return;
      event();
      this.#repeat(minMs, maxMs, event);
    });
  }

  /** Lets an operator start a run, unless another one has the lock. */
  #operate(): void {
    const { control, random } = this.#world;
    if (control.lockedBy || control.isAway) return;
    const { exists, server } = control.current;
    const usual = exists || server.isAway ? goals : goalsOfLost;
    const earlier = exists ? goalsOfEarlier : goalsOfEarlierLost;
    const goal = random.pick(control.newer ? earlier : usual) ?? 'retreat';
    this.#start(control.isActive ? goal : 'provision');
  }

  #start(goal: DatabaseGoal): void {
    const { control, random, isCalm, runs, servers } = this.#world;
    const needsTarget = goal === 'switch' || goal === 'upgrade' || goal === 'drop';
    // Operators may name one that is lost, or one to drop that the tenant has.
    const mayBe = ({ isComplete, exists, state }: TenantDatabase): boolean =>
      isCalm
        ? isComplete && exists
        : isComplete || (goal === 'drop' && (state === 'condemned' || state === 'current'));
    const target = needsTarget
      ? random.pick(control.databases.filter(mayBe))
      : isAdoption(goal)
        ? control.newer
        : undefined;
    if (needsTarget && !target) return;
    const server = random.pick(
      servers.filter(each => goal !== 'move' || each !== control.current.server),
    );
    runs.push(new DatabaseRun(this.#world, { goal, target, server }));
  }

  /** Servers that the tenant does not need stay away. */
  #calmDown(): void {
    const { control, processes, random, runs, servers, trace } = this.#world;
    trace(() => 'calm');
    this.#world.isCalm = true;
    bringControlBack(this.#world);
    for (const server of servers) {
      server.isAway = false;
      if (server !== control.current.server && random.chance(0.5)) takeAway(this.#world, server);
    }
    for (const run of runs) {
      if (run.state !== 'stopped') continue;
      run.disconnect();
      run.continue();
    }
    for (const process of processes) process.continue();
    this.#advance(calmMs);
    if (control.lockedBy) violation('a run has not ended');
    // a run may have given the tenant another database meanwhile
    control.current.server.isAway = false;
    if (control.newer) control.newer.server.isAway = false;
  }

  #runEachGoal(): void {
    const { control, servers } = this.#world;
    if (control.newer) this.#runCalmly(control.current.exists ? 'adopt' : 'adopt for lost');
    if (control.isActive) this.#runCalmly('retreat');
    for (const server of servers) server.isAway = false;
    if (!control.isActive) this.#runCalmly('provision');
    if (!control.current.exists) this.#runCalmly('replace');
    for (const goal of ['place', 'upgrade', 'move', 'switch', 'move', 'drop'] as const) {
      this.#runCalmly(goal);
    }
    loseCurrent(this.#world);
    this.#runCalmly('replace');
    for (const { name, state } of control.databases) {
      if (state === 'reserved' || state === 'condemned') violation(`${name} is left ${state}`);
    }
  }

  /** Without faults, a run leads to its goal, and no request fails meanwhile. */
  #runCalmly(goal: DatabaseGoal): void {
    const { control, failed, runs } = this.#world;
    const { current } = control;
    const acknowledged = this.#acknowledged.size;
    this.#start(goal);
    const run = runs.at(-1);
    for (let ms = 0; ms < calmMs && run?.state !== 'ended'; ms += 50) this.#advance(50);
    this.#advance(250); // for the requests of that time
    if (!run?.hasSucceeded) violation(`a run to ${goal} without faults has failed`);
    const isChange = !(['place', 'upgrade', 'drop', 'retreat'] as DatabaseGoal[]).includes(goal);
    if ((control.current !== current) !== isChange) {
      violation(`after a run to ${goal} the tenant has ${current.name}`);
    }
    if (control.current.exists && this.#acknowledged.size === acknowledged) {
      violation(`the tenant is not served after a run to ${goal}`);
    }
    // Before a retreat they may have waited for long, and before `adopt` they fail.
    if (goal !== 'retreat' && !isAdoption(goal) && current.exists && this.#world.failed > failed) {
      violation(`requests failed in a run to ${goal}`);
    }
  }

  #advance(ms: number): void {
    this.#world.scheduler.runUntil(this.#world.scheduler.now + ms, () => {});
  }
}

function isAdoption(goal: DatabaseGoal): boolean {
  return goal === 'adopt' || goal === 'adopt for lost';
}

/**
 * At most one database lets the tenant in; it is that of the tenant, unless a fence is closed.
 */
function check({ databases, current, newer, fence, isActive }: DatabasesControl): void {
  const open = databases.filter(({ exists, isOpen }) => exists && isOpen);
  if (open.length > 1) violation(`${open.map(({ name }) => name).join(' and ')} are open`);
  const mayBeClosed = newer || current.wasLost || current.isAdopted;
  const isClosed = current.exists && !current.isOpen && !mayBeClosed;
  if (isActive && fence !== 'closed' && isClosed) violation(`requests find ${current.name} closed`);
}
