import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import pLimit from 'p-limit';
import { removeBuild } from '../deploy/release/former-build.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { findRunningPostgres } from '../src/lib/embedded/pid-file.ts';
import { startEmbeddedPostgres } from '../src/lib/embedded/postgres.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import type { Comparison, Cost, Side } from './against-report.ts';
import { progress } from './bench-progress.ts';
import {
  type Build,
  type BuildInstallation,
  checkOut,
  findCommit,
  installBuild,
  presentBuild,
  startBuild,
} from './build.ts';
import { checkPlan, prepare } from './call.ts';
import { Children } from './children.ts';
import { type Kind, seeds } from './kinds.ts';
import { hasWrk, loadGenerator, startLoad } from './load.ts';
import type { AgainstOptions } from './options.ts';
import type { Plan, Request } from './plan.ts';
import { startRedis } from './redis.ts';
import { installFastify } from './testbed.ts';
import { loginRequest } from './tokens.ts';
import { cpuOfFamily } from './usage.ts';

/** One build while it serves. */
interface Running extends BuildInstallation {
  readonly side: Side;
  readonly url: string;
  readonly pid: number;
}

/** The folder, the server and the child processes that both builds share. */
interface Shared {
  readonly folder: string;
  readonly serverUrl: string;
  readonly postgresPid: number;
  readonly children: Children;
}

const clientCounts = [1, 16] as const;
const warmUpRounds = 3;
const seedConcurrency = 8;

/**
 * No checkpoint and no vacuum of PostgreSQL's own begins during a measurement: it would count
 * for the build whose turn it is. Both happen between the kinds of requests.
 */
const postgresSettings = [
  'max_connections=300',
  'autovacuum=off',
  'checkpoint_timeout=1d',
  'max_wal_size=16GB',
];

/**
 * Compares this build with another one. Each of them has an installation of its own on the same
 * PostgreSQL and Redis, which its own command line makes, and is used over HTTP only. So they
 * may differ in everything else.
 * @param onOpen receives the function that closes everything, before anything can fail
 */
export async function compareBuilds(
  options: AgainstOptions,
  onOpen: (close: () => Promise<void>) => unknown,
): Promise<Comparison> {
  const commit = await findCommit(options.against);
  const undo: (() => Promise<unknown>)[] = [];
  onOpen(async () => {
    for (let step = undo.pop(); step; step = undo.pop()) await step();
  });

  const folder = await mkdtemp(join(tmpdir(), 'backoffice-bench-'));
  undo.push(() => rm(folder, { recursive: true, force: true }));
  const checkout = join(folder, 'checkout');
  undo.push(() => removeBuild(checkout));
  const builds = { present: await presentBuild(), against: await checkOut(commit, checkout) };

  progress('starting PostgreSQL and Redis');
  const children = new Children();
  if (!hasWrk) await installFastify(children); // which has autocannon
  const postgres = await startEmbeddedPostgres(folder, { settings: postgresSettings });
  undo.push(postgres.leave);
  undo.push(() => children.stop());
  const postgresPid = (await findRunningPostgres(join(folder, 'postgres')))?.pid ?? Number.NaN;
  const shared = { folder, serverUrl: postgres.url, postgresPid, children };
  const redis = await startRedis(children, folder);

  const present = await startSide('present', builds.present, shared, redis?.url, options);
  const against = await startSide('against', builds.against, shared, redis?.url, options);
  const load = loadavg()[0]?.toFixed(1);
  const results: Comparison['results'] = [];
  for (const kind of options.kinds) {
    progress(`${kind.name}: ${kind.title} (load ${loadavg()[0]?.toFixed(1)})`);
    results.push(...(await measureKind(kind, { present, against }, shared, options)));
  }

  return {
    present: builds.present.name,
    against: builds.against.name,
    environment: [
      `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, this build ${builds.present.name}, against ${builds.against.name} (${options.against})`,
      `${process.platform} ${process.arch}, ${availableParallelism()} cores (${cpus()[0]?.model ?? 'unknown'}), load average ${load} before the first measurement and ${loadavg()[0]?.toFixed(1)} after the last`,
      `Node ${process.versions.node}, ${redis ? 'Redis' : 'no Redis'}, load by ${loadGenerator}; ${options.rounds} rounds of ${options.seconds} s for each build, in the order A B B A`,
    ],
    results,
  };
}

/** Makes an installation of a build with its records, and starts its service. */
async function startSide(
  side: Side,
  build: Build,
  shared: Shared,
  redisUrl: string | undefined,
  { profile }: AgainstOptions,
): Promise<Running> {
  const installation = await installBuild(build, shared.serverUrl, side);
  const environment = {
    ...installation.settings,
    // A database of its own: installations on one would count together.
    ...(redisUrl ? { REDIS_URL: `${redisUrl}/${side === 'present' ? 0 : 1}` } : {}),
    ...(profile ? { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${join(profile, build.name)}` } : {}),
  };
  const { url, child } = await startBuild(shared.children, installation, environment);
  const running = { ...installation, side, url, pid: child.pid };

  const client = await clientOf(running);
  const requests = seeds(client);
  progress(`${build.name}: creating ${requests.length} records`);
  await sendAll(running, requests);

  return running;
}

async function sendAll({ build, url }: Running, requests: Request[]): Promise<void> {
  await pLimit(seedConcurrency).map(requests, async request => {
    const { status, body } = await prepare(url, request);
    if (status !== 201) {
      throw new Error(
        `${build.name}: POST ${request.path} returned ${status} ${body.slice(0, 200)}`,
      );
    }
  });
}

/** Logs in, and returns what makes the requests of a kind. */
async function clientOf({
  build,
  url,
  admin,
  guid,
}: Running): Promise<Parameters<Kind['plan']>[0]> {
  const login = (): Request => loginRequest(admin, guid);
  const { status, body } = await prepare(url, login());
  if (status !== 200) {
    throw new Error(`${build.name}: the login returned ${status} ${body.slice(0, 200)}`);
  }
  const headers = { Authorization: `Bearer ${JSON.parse(body).accessToken}` };

  return {
    login,
    request: (method, path, content) => {
      if (!content) return { method, path, headers };
      return {
        method,
        path,
        headers: { ...headers, 'Content-Type': 'application/json' },
        body: JSON.stringify(content),
      };
    },
  };
}

/**
 * Measures a kind of request: each round measures both builds, and the next one in the other
 * order.
 */
async function measureKind(
  kind: Kind,
  builds: Record<Side, Running>,
  shared: Shared,
  { rounds, seconds }: AgainstOptions,
): Promise<Comparison['results']> {
  await settle(shared.serverUrl);
  const plans = {
    present: await warmUp(kind, builds.present, shared, seconds),
    against: await warmUp(kind, builds.against, shared, seconds),
  };

  const results = clientCounts.map(clients => {
    return {
      kind: kind.name,
      title: kind.title,
      clients,
      present: [] as Cost[],
      against: [] as Cost[],
    };
  });
  for (let round = 0; round < rounds; round++) {
    const order: Side[] = round % 2 === 0 ? ['present', 'against'] : ['against', 'present'];
    for (const result of results) {
      for (const side of order) {
        const plan = { ...plans[side], connections: result.clients };
        result[side].push(await measure(builds[side], plan, shared, seconds));
      }
    }
    progress(`${kind.name} ${round + 1}/${rounds}`);
  }

  return results;
}

/**
 * Writes a checkpoint, and vacuums every database that a build has made, so that both have
 * fresh statistics.
 */
async function settle(serverUrl: string): Promise<void> {
  const { rows } = await withConnection(serverUrl, client =>
    client.query<{ name: string }>(
      'select datname as name from pg_database where datallowconn and not datistemplate',
    ),
  );
  for (const { name } of rows) {
    await withConnection(databaseUrl(serverUrl, name), client => client.query('vacuum analyze'));
  }
  await withConnection(serverUrl, client => client.query('checkpoint'));
}

/**
 * Checks the responses of a kind, and sends so many that V8 has compiled what they need.
 * @returns its plan
 */
async function warmUp(
  kind: Kind,
  build: Running,
  shared: Shared,
  seconds: number,
): Promise<Omit<Plan, 'connections'>> {
  const plan = kind.plan(await clientOf(build));
  const [first] = plan.requests;
  if (first) {
    await checkPlan(
      { name: build.build.name, url: build.url },
      { ...plan, requests: [first], connections: 1 },
    );
  }
  await measure(
    build,
    { ...plan, connections: Math.max(...clientCounts) },
    shared,
    warmUpRounds * seconds,
  );

  return plan;
}

async function measure(build: Running, plan: Plan, shared: Shared, seconds: number): Promise<Cost> {
  const { children, folder, postgresPid } = shared;
  const cpu = (): Promise<number[]> => Promise.all([build.pid, postgresPid].map(cpuOfFamily));
  const before = await cpu();
  const load = await (await startLoad(children, folder, build.url, plan, seconds)).result;
  const after = await cpu();

  const { requests, statusErrors, socketErrors } = load;
  if (statusErrors + socketErrors > 0 || requests === 0) {
    throw new Error(
      `${build.build.name}: of ${requests} requests ${plan.requests[0]?.method} ${plan.requests[0]?.path}, ` +
        `${statusErrors} got an error and ${socketErrors} connections failed`,
    );
  }
  const [cpuService = Number.NaN, cpuPostgres = Number.NaN] = after.map(
    (ms, index) => ((ms - (before[index] ?? Number.NaN)) * 1_000) / requests,
  );

  return {
    time: (load.seconds * 1e6) / requests,
    cpuService,
    cpuPostgres,
    cpu: cpuService + cpuPostgres,
  };
}
