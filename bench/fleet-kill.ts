import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { openBenchInstallation } from './bench-installation.ts';
import { type RunningCommand, succeeded } from './fleet-command.ts';
import { fleetState, provisionedState, queryControl } from './fleet-state.ts';
import { type Fleet, makeFleet } from './fleet-tenants.ts';
import { seeded } from './plan.ts';
import { readScriptOptions } from './script-options.ts';

/**
 * Kills the real command line at random points of migration runs and of provisioning, and checks that running the
 * command once more leaves the same state as an uninterrupted command: each migration applied once, nothing orphaned.
 * The exit code is 1 otherwise.
 */
const usage = {
  command: 'bench:kill',
  text: `Kills migration runs and provisioning at random points, and checks that the next command repairs everything.
The same --seed kills at the same points.`,
};
const { tenants, kills, seed } = readScriptOptions(usage, { tenants: 200, kills: 20, seed: randomInt(1, 1_000_000) });
const random = seeded(seed);
console.log(`seed ${seed}`);

/** In this time a run migrates one or two tenants. */
const maxDelayMs = 30;
/** A run needs more time before its first tenant: the delay of a kill before it is longer by this factor. */
const startFactor = 50;

const opened = await openBenchInstallation(['max_connections=100', 'shared_buffers=256MB']);
let fleet: Fleet | undefined;
try {
  fleet = await makeFleet(opened, tenants);
  await killRuns(fleet);
  await killProvisioning(fleet);
  const repair = await fleet.command('next', ['doctor', '--fix']).ended;
  const check = await fleet.command('next', ['doctor']).ended;
  console.log(`doctor --fix: ${repair.code}; ${repair.stdout.trim().split('\n').at(-1)}`);
  console.log(`doctor: ${check.code}; ${check.stdout.trim()}`);
  if (check.code !== 0) throw new Error('doctor still reports findings');
} finally {
  await fleet?.next.remove();
  await opened.close();
}

async function killRuns(on: Fleet): Promise<void> {
  const run = () => on.command('next', ['migrate', '--all', '--json']);
  await succeeded(on.command('next', ['migrate', on.tenants[0]?.slug ?? ''])); // makes the template of the build
  await on.revert();
  const uninterrupted = await succeeded(run());
  const expected = await fleetState(opened, on);
  console.log(`uninterrupted run of ${tenants}: ${uninterrupted.ms.toFixed(0)} ms`);
  for (let kill = 1; kill <= kills; kill++) {
    await on.revert();
    await queryControl(opened, 'delete from migration_runs');
    const count = Math.floor(random() * tenants);
    const killed = await killAfterTenants(run(), count, random() * maxDelayMs);
    const [unfinished] = await queryControl<{ count: number }>(
      opened,
      'select count(*)::int as count from tenants where schema_version is null',
    );
    const second = await succeeded(run());
    const first = migratedSlugs(killed.stdout);
    const twice = migratedSlugs(second.stdout).filter(slug => first.includes(slug));
    const runs = await queryControl<{ state: string; pending: number }>(
      opened,
      `select state, (select count(*)::int from migration_outcomes
                       where run_id = id and state in ('pending', 'running')) as pending
         from migration_runs order by id`,
    );
    const states = runs.map(({ state }) => state).join(' ');
    const equal = (await fleetState(opened, on)) === expected;
    const done = `${first.length} done, ${unfinished?.count} unfinished, then ${migratedSlugs(second.stdout).length}`;
    console.log(`killed after ${count}: ${done}; runs: ${states}; ${equal ? 'equal' : 'NOT EQUAL'}`);
    if (!equal || twice.length > 0 || !/^(abandoned )?succeeded$|^succeeded succeeded$/.test(states))
      throw new Error(`the state differs from that of an uninterrupted run; migrated twice: ${twice.join(', ')}`);
    if (runs.some(({ pending }) => pending > 0)) throw new Error('the ledger has unfinished outcomes');
  }
}

async function killProvisioning(on: Fleet): Promise<void> {
  const provision = (slug: string) =>
    on.command('next', ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`, '--json']);
  const uninterrupted = await succeeded(provision('uninterrupted'));
  const expected = await provisionedState(opened, 'uninterrupted');
  console.log(`uninterrupted provisioning: ${uninterrupted.ms.toFixed(0)} ms`);
  // Half of the tenants find a database in the warm pool.
  await succeeded(on.command('next', ['pool', 'fill', '--size', String(Math.ceil(kills / 2))]));
  for (let kill = 1; kill <= kills; kill++) {
    const slug = `killed-${kill}`;
    const delayMs = Math.round(random() * uninterrupted.ms);
    await killAfter(provision(slug), delayMs);
    const [tenant] = await queryControl<{ status: string }>(
      opened,
      `select status from tenants where slug = '${slug}'`,
    );
    const second = await provision(slug).ended;
    // The killed command may have finished its work; the second one then fails with 1, because the tenant exists.
    const expectedCode = tenant?.status === 'active' ? 1 : 0;
    const equal = (await provisionedState(opened, slug)) === expected;
    const line = `${tenant?.status ?? 'nothing'}, then exit ${second.code}; ${equal ? 'equal' : 'NOT EQUAL'}`;
    console.log(`killed after ${delayMs} ms: ${line}`);
    if (!equal || second.code !== expectedCode)
      throw new Error(`the state differs from that of an uninterrupted command: ${second.stderr}`);
  }
}

/** Kills a run a moment after it has reported so many tenants. */
async function killAfterTenants(command: RunningCommand, count: number, delayMs: number): Promise<{ stdout: string }> {
  let ended = false;
  void command.ended.then(() => (ended = true));
  if (count === 0) await sleep(delayMs * startFactor);
  while (!ended && migratedSlugs(command.output.stdout).length < count) await sleep(1);
  return killAfter(command, delayMs);
}

async function killAfter(command: RunningCommand, delayMs: number): Promise<{ stdout: string }> {
  await sleep(delayMs);
  command.kill();
  return command.ended;
}

/** Returns the tenants that a run has reported as migrated. */
function migratedSlugs(stdout: string): string[] {
  const lines = stdout.split('\n').filter(line => line.startsWith('{') && line.endsWith('}'));
  return lines.map(line => JSON.parse(line).slug);
}
