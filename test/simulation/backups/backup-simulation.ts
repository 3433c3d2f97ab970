import { runBackupSteps } from '../../../src/operator/archives/backup-protocol.ts';
import { Random } from '../random.ts';
import type { SimulationOptions } from '../simulation-options.ts';
import { Violation } from '../violation.ts';
import { type BackupWorld, byTime, simulatedEffects } from './simulated-backup.ts';
import { SimulatedDatabase } from './simulated-database.ts';

const steps = 250;

/**
 * Simulates backup runs of tenants to which others write all the time. Runs are killed between any two of their
 * effects, writes of files fail, archives turn out to be damaged, servers crash and counters are reset. Then nobody
 * writes, and one more run must leave an archive of everything.
 * @throws {Violation} when an invariant is broken
 */
export async function simulateBackups({ seed, trace }: SimulationOptions): Promise<void> {
  const random = new Random(seed);
  const names = ['acme', 'globex', 'initech'].slice(0, random.integer(1, 3));
  let problem: string | undefined;
  const world: BackupWorld = {
    databases: names.map(name => new SimulatedDatabase(name)),
    ledger: new Map(),
    files: new Map(),
    keyring: new Set(),
    controlArchives: [],
    clock: 0,
    fail: text => {
      problem ??= text;
    },
  };
  let waiting: (() => void)[] = [];
  let isRunning = false;
  const start = (): void => {
    isRunning = true;
    const own: (() => void)[] = [];
    waiting = own;
    trace?.push('a run begins');
    runBackupSteps(simulatedEffects(world, () => new Promise(resolve => own.push(resolve)))).then(
      () => {
        if (waiting === own) isRunning = false;
        checkEntries(world);
      },
      error => world.fail(`a run failed: ${error.message}`),
    );
  };
  const goOn = (): void => {
    const [next] = waiting.splice(random.integer(0, waiting.length - 1), 1);
    trace?.push('the run goes on');
    next?.();
  };
  const settle = async (): Promise<void> => {
    await new Promise(resolve => setImmediate(resolve));
    if (problem !== undefined) throw new Violation(problem);
  };

  for (let count = 0; count < steps; count++) {
    if (!isRunning) start();
    else if (random.chance(0.5)) goOn();
    else if (random.chance(0.03)) {
      trace?.push('the run is killed');
      isRunning = false;
    } else if (random.chance(0.02)) damage(world, random);
    else random.pick(world.databases)?.change(random);
    await settle();
  }
  trace?.push('calm');
  for (const database of world.databases) database.calm();
  // A run that is under way may have polled before; the next one has not.
  for (let runs = 0; runs < 3; runs++) {
    if (!isRunning) start();
    await settle();
    while (isRunning) {
      goOn();
      await settle();
    }
  }
  checkEnd(world);
  await settle();
}

function damage({ ledger }: BackupWorld, random: Random): void {
  const entry = random.pick([...ledger.values()].filter(({ state }) => state === 'complete'));
  if (entry) entry.fault = 'damaged';
}

/** Checks a run that has ended: the archive of the control database has the ledger, before the removals. */
function checkEntries({ ledger, files, controlArchives, fail }: BackupWorld): void {
  const archived = controlArchives.at(-1);
  for (const { id, state } of ledger.values()) {
    if (state !== 'complete') fail(`archive ${id} is ${state} after a run`);
    if (!files.has(id)) fail(`archive ${id} has no file`);
    if (!archived?.has(id)) fail(`the archive of the control database does not know archive ${id}`);
  }
}

/** Checks the last run: the newest archive of each tenant has everything, and no file is left. */
function checkEnd({ databases, ledger, files, fail }: BackupWorld): void {
  for (const { tenant, committed } of databases) {
    const newest = [...ledger.values()]
      .filter(entry => entry.tenant === tenant)
      .sort(byTime)
      .at(-1);
    if (!newest || newest.fault !== null) fail(`${tenant} has no archive that can be restored`);
    else if (files.get(newest.id) !== committed) fail(`the newest archive of ${tenant} has not all of its changes`);
  }
  for (const id of files.keys()) if (!ledger.has(id)) fail(`nobody knows file ${id}`);
}
