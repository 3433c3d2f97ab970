import { setTimeout as sleep } from 'node:timers/promises';
import pLimit from 'p-limit';
import { openBenchInstallation } from './bench-installation.ts';
import { login, type RunningService, readList, startService } from './fleet-services.ts';
import { queryControl } from './fleet-state.ts';
import { type Fleet, type FleetTenant, makeFleet } from './fleet-tenants.ts';
import { readScriptOptions } from './script-options.ts';

/**
 * Rehearses an upgrade in which one tenant fails: a service of this build and one of the next run at the same time,
 * clients read from every tenant all the time (from the next build first, and on `migration_pending` from this one),
 * and a migration run migrates the fleet. The exit code is 1 unless all other tenants are at head and are served by the
 * next build, and every response was 200 or a permitted `migration_pending` (see `observe`).
 */
const usage = { command: 'bench:fail', text: 'Upgrades a fleet under load while the migration of one tenant fails.' };
const { tenants, clients } = readScriptOptions(usage, { tenants: 200, clients: 8 });

const opened = await openBenchInstallation(['max_connections=300', 'shared_buffers=256MB']);
let fleet: Fleet | undefined;
const services: RunningService[] = [];
try {
  fleet = await makeFleet(opened, tenants, true);
  const current = await startService(opened, 'src/main.ts');
  services.push(current);
  const next = await startService(opened, fleet.next.file('src/main.ts'));
  services.push(next);
  await upgrade(fleet, { current, next });
} finally {
  for (const service of services) await service.kill();
  await fleet?.next.remove();
  await opened.close();
}

type Builds = Record<'current' | 'next', RunningService>;

/** What the clients have observed of one tenant. */
interface Observation {
  readonly slug: string;
  readonly token: string;
  requests: number;
  /** Responses that violate the guarantee. */
  faults: string[];
  /** True as soon as the next build has served the tenant. */
  onNextBuild: boolean;
  /** Longest time between two successful responses of either build, in ms. */
  maxGapMs: number;
  servedAt: number;
}

async function upgrade({ tenants: all, next, command, send }: Fleet, builds: Builds): Promise<void> {
  const broken = all[Math.floor(all.length / 2)] as FleetTenant;
  await send(broken, ['create table labels (in_the_way text)']);
  const observations = await pLimit(2).map(all, async (tenant): Promise<Observation> => {
    const token = await login(builds.current, tenant);
    return { slug: tenant.slug, token, requests: 0, faults: [], onNextBuild: false, maxGapMs: 0, servedAt: 0 };
  });
  for (const observation of observations) observation.servedAt = performance.now();

  let running = true;
  const load = Array.from({ length: clients }, async (_, client) => {
    for (let turn = client; running; turn += clients)
      await observe(observations[turn % observations.length] as Observation, builds);
  });
  await sleep(2_000);
  const startedAt = performance.now();
  const { code, stdout } = await command('next', ['migrate', '--all', '--despite-running', '--json']).ended;
  const seconds = (performance.now() - startedAt) / 1_000;
  await sleep(2_000);
  running = false;
  await Promise.all(load);

  const brokenToken = observations.find(({ slug }) => slug === broken.slug)?.token ?? '';
  const others = observations.filter(({ slug }) => slug !== broken.slug);
  const faults = others.flatMap(each => each.faults.map(fault => `${each.slug}: ${fault}`));
  const failed = stdout.split('\n').filter(line => line.includes('"state":"failed"'));
  const [atHead] = await queryControl<{ count: number }>(
    opened,
    `select count(*)::int as count from tenants where schema_version = '${next.head}'`,
  );
  const responses = [await readList(builds.next, brokenToken), await readList(builds.current, brokenToken)];
  const requests = others.reduce((sum, each) => sum + each.requests, 0);
  const onNextBuild = others.filter(each => each.onNextBuild).length;
  const gaps = others.map(({ maxGapMs }) => maxGapMs).sort((a, b) => a - b);
  const gap = (share: number) => gaps[Math.floor((gaps.length - 1) * share)]?.toFixed(0);
  console.log(`run of ${all.length} under load: exit ${code}, ${seconds.toFixed(1)} s, ${atHead?.count} at head`);
  console.log(`failed: ${failed.join(' ')}`);
  console.log(`the failed tenant: next build ${responses[0]}, this build ${responses[1]}`);
  console.log(`the others: ${requests} requests, ${faults.length} faults, ${onNextBuild} served by the next build`);
  console.log(`longest time without a successful response, ms: median ${gap(0.5)}, 95 % ${gap(0.95)}, max ${gap(1)}`);
  for (const fault of faults.slice(0, 10)) console.log(fault);
  const asExpected = code === 1 && failed.length === 1 && atHead?.count === all.length - 1 && faults.length === 0;
  if (!asExpected || responses[0] !== '503 migration_pending' || onNextBuild < others.length) process.exitCode = 1;
}

/**
 * Reads from the next build, and on `migration_pending` from this one. Both may return it at the moment of the
 * migration; the next build may not return it once it has served the tenant.
 */
async function observe(seen: Observation, { current, next }: Builds): Promise<void> {
  seen.requests++;
  const fromNext = await readList(next, seen.token);
  if (fromNext === '200') seen.onNextBuild = true;
  else if (fromNext !== '503 migration_pending' || seen.onNextBuild) seen.faults.push(`next build ${fromNext}`);
  const served = fromNext === '200' ? fromNext : await readList(current, seen.token);
  if (served !== '200' && served !== '503 migration_pending') seen.faults.push(`this build ${served}`);
  if (served !== '200') return;
  seen.maxGapMs = Math.max(seen.maxGapMs, performance.now() - seen.servedAt);
  seen.servedAt = performance.now();
}
