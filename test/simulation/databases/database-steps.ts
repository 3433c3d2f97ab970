import type {
  DatabaseGoal,
  DatabaseStep,
} from '../../../src/operator/databases/protocol/database-protocol.ts';
import { violation } from '../violation.ts';
import type { DatabaseServer, DatabaseWorld, TenantDatabase } from './database-world.ts';

/** The knowledge of a run. */
export interface RunState {
  readonly world: DatabaseWorld;
  readonly goal: DatabaseGoal;
  readonly epoch: number;
  readonly server: DatabaseServer;
  target: TenantDatabase | undefined;
  /** The database of the tenant, as the run has read it. */
  current: TenantDatabase;
  /** The database that the tenant had until the exchange of this run. */
  former: TenantDatabase | undefined;
  hasCopied: boolean;
  /**
   * True when the target has the webhooks of the current database, and no request could change
   * them meanwhile.
   */
  hasWebhooks: boolean;
  waitUntil: number;
}

/** The effect of a step, which returns `again` while it waits. */
type Effect = (run: RunState, snapshot: Set<number>) => unknown;
type Effects = Partial<Record<DatabaseStep, Effect>>;

const maxAnnounceMs = 10_000;
/** More than all writes of a run. */
const skippedNumbers = 1_000_000;
/** Shorter than in production: a few of many simulated requests always take longer. */
const maxWaitMs = 500;

/**
 * The steps in the control database: each is one transaction of the connection that holds the
 * lock.
 */
export const controlEffects: Effects = {
  'condemn leftovers': ({ world }) => world.control.condemnLeftovers(),
  reserve: run => {
    run.target = run.world.control.reserve(run.server, new Set([-run.epoch]));
  },
  'drop leftovers': ({ world, goal }) => {
    for (const database of world.control.databases) {
      if (database.state !== 'condemned' || (goal !== 'provision' && database.server.isAway)) {
        continue;
      }
      drop(database);
      database.state = 'gone';
    }
  },
  complete: run => {
    const target = targetOf(run);
    target.change(['reserved'], 'filled');
    target.isOutdated = run.world.random.chance(0.5); // at some time, a later build
  },
  'announce fence': run => {
    const { control, processes, scheduler } = run.world;
    if (run.goal === 'replace' && targetOf(run).exists) {
      violation('a lost database is restored before the processes prepare');
    }
    if (control.fence === 'none') {
      control.setFence('announced');
      run.waitUntil = scheduler.now + maxAnnounceMs;
    }
    if (control.isConfirmedBy(processes)) return undefined;
    if (scheduler.now > run.waitUntil) throw new Error('a process does not confirm the fence');
    return 'again';
  },
  'close fence': run => {
    const { control, scheduler } = run.world;
    if (control.fence === 'none') throw new Error('no fence is announced');
    control.setFence('closed');
    run.waitUntil = scheduler.now + maxWaitMs;
  },
  'wait for processes': ({ world, waitUntil }) =>
    !world.control.isConfirmedBy(world.processes) && world.scheduler.now < waitUntil
      ? 'again'
      : undefined,
  exchange: run => {
    const { world, goal } = run;
    const { control } = world;
    const [former, target] = [control.current, targetOf(run)];
    const isAdoption = goal === 'adopt' || goal === 'adopt for lost';
    const isThere = goal === 'switch' || isAdoption;
    if (isThere ? !target.isComplete : target.state !== 'reserved') {
      throw new Error(`${target.name} is ${target.state}`);
    }
    run.former = former;
    target.replacedBy = undefined;
    if (isAdoption) {
      control.exchange(target, goal === 'adopt' ? 'kept' : 'condemned');
      target.isAdopted = true;
      return;
    }
    if (target.isOutdated) violation(`${target.name} has another version`);
    if (goal === 'replace' && former.exists && !former.wasLost) {
      violation(`${former.name} is replaced, and not lost`);
    }
    if (goal === 'switch' && !run.hasWebhooks) {
      violation(`${target.name} has not the webhooks that the tenant has`);
    }
    if (!isEqual(target.rows, goal === 'move' ? former.rows : target.expected)) {
      violation(`${target.name} has not the data that the tenant is to get`);
    }
    control.exchange(target, goal === 'replace' ? 'condemned' : 'kept');
    former.isOutdated = world.random.chance(0.5);
  },
  serve: ({ world }) => {
    if (!world.control.isActive) world.startServing();
    world.control.isActive = true;
    world.control.setFence('none');
  },
  condemn: run => targetOf(run).change(['filled', 'kept', 'condemned'], 'condemned'),
  forget: run => targetOf(run).change(['condemned'], 'gone'),
};

/** The steps in tenant databases. */
export const databaseEffects: Effects = {
  create: run => targetOf(run).create(),
  fill: (run, snapshot) => write(run, snapshot),
  'claim current': ({ current, epoch }) => current.isLost() || current.claim(epoch),
  'claim target': run => targetOf(run).claim(run.epoch),
  'upgrade target': run => {
    write(run, targetOf(run).rows);
    targetOf(run).isOutdated = false;
  },
  'copy ahead': (run, snapshot) => {
    if (run.current.isLost()) throw new Error(`${run.current.name} is lost`);
    write(run, snapshot);
    run.hasCopied = true;
  },
  'close current': ({ current, epoch }) => current.open(epoch, false),
  'end sessions': ({ current }) => {
    current.reach();
    current.endSessions();
  },
  'keep webhooks': run => {
    run.current.reach();
    write(run, targetOf(run).rows);
    run.hasWebhooks = run.current.sessions.size === 0;
  },
  'require lost': ({ current }) => {
    if (!current.isLost()) throw new Error(`${current.name} is not lost`);
    current.isOpen = false; // the role, which is still there, may not log in
  },
  'copy changes': (run, snapshot) => {
    if (run.current.isLost() || !run.hasCopied) {
      throw new Error('there is nothing to copy, or nothing to compare');
    }
    write(run, snapshot);
  },
  'open current': ({ current, epoch }) => {
    if (current.isLost()) return;
    if (current.replacedBy) throw new Error(`${current.name} was replaced`);
    current.open(epoch, true);
  },
  'name successor': ({ former, target, epoch }) => {
    if (!former || former.server.isAway || !former.exists || former.claimedBy > epoch) return;
    former.replacedBy = target;
  },
  'carry numbers': run => {
    const { world, current, epoch, goal } = run;
    const [target, { control }] = [targetOf(run), world];
    target.guard(epoch);
    const isLost = goal === 'replace' || goal === 'adopt for lost';
    if (!isLost) current.reach();
    const given = isLost ? control.knownNumber + skippedNumbers : current.lastNumber;
    target.lastNumber = Math.max(target.lastNumber, given);
    control.knownNumber = target.lastNumber;
  },
  drop: run => drop(targetOf(run)),
};

function targetOf({ target }: RunState): TenantDatabase {
  if (!target) throw new Error('the run has no target');
  return target;
}

/** Changes the target, unless a later run has claimed it. */
function write(run: RunState, rows: Set<number>): void {
  const target = targetOf(run);
  target.guard(run.epoch);
  const isOwn = target.state === 'reserved' || target.state === 'condemned';
  const mayUpgrade = run.goal === 'switch' || run.goal === 'upgrade';
  // For an earlier control database, a former one that is upgraded is the current one.
  const isCurrent = target.state === 'current' && run.world.control.newer === undefined;
  if (!isOwn && (!mayUpgrade || isCurrent)) {
    violation(`${target.name} is changed while it is ${target.state}`);
  }
  if (target.changedBy > run.epoch) {
    violation(`an earlier run changes ${target.name} after a later one`);
  }
  target.changedBy = run.epoch;
  target.rows = rows;
}

function drop(database: TenantDatabase): void {
  const { name, state } = database;
  if (state !== 'condemned' && state !== 'gone') {
    violation(`${name} is dropped while it is ${state}`);
  }
  if (database.sessions.size > 0) violation(`${name} is dropped while it is used`);
  database.drop();
}

function isEqual(some: ReadonlySet<number>, others: ReadonlySet<number>): boolean {
  return some.size === others.size && [...some].every(row => others.has(row));
}
