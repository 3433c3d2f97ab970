import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { generatePassword } from '../../src/operator/credentials/users.ts';
import { createServiceLogin } from '../../src/operator/schema/service-login.ts';
import { startWorkers } from '../service/workers/started-workers.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { type LoadedService, LoadedServices } from '../support/loaded-services.ts';
import { LostMachine } from '../support/lost-machine.ts';
import { redisInstalled, startRedis } from '../support/redis.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { type SilentProxy, startSilentProxy } from '../support/silent-proxy.ts';
import { startMs } from '../support/starts.ts';
import { postgresUrl } from '../support/test-server.ts';
import { TwoServers } from '../support/two-servers.ts';
import { use } from '../support/use.ts';
import type { TestTenant } from '../support/world.ts';

const budget = Number(process.env.BUDGET ?? 32);
const reserve = Math.max(6, Math.ceil(budget / 10));
/** Beside the least budget of its server, a process has this much at least. */
const minimum = 4;
const mostProcesses = Math.floor((budget - 4) / minimum);
const tenantCount = Number(process.env.TENANTS ?? 30);
/** The number of services that start at once. */
const serviceCount = Number(process.env.SERVICES ?? 2);
/** The number of servers that have tenants: one is that of the control database. */
const serverCount = Number(process.env.SERVERS ?? 2);
const settings = { CONNECTION_BUDGET: String(budget) };

/**
 * Processes of the service that share the server of the control database and another one, under
 * load, with commands, and while processes, networks and the control database fail. After each
 * test it prints, for each server, the most connections at a moment, for how long there were
 * more than the budget, and the responses. `BUDGET=20` and `BUDGET=80` run it with another
 * budget, `SERVICES=8` with more processes from the start, `SERVERS=1` with all tenants on the
 * server of the control database.
 */
describe(`drill: processes that share a budget of ${budget} connections on two servers`, function () {
  this.timeout(900_000);
  // First, while the servers run.
  after(async () => {
    await loaded?.close();
    await control?.end();
    await proxy?.close();
  });
  const servers = use(() =>
    TwoServers.start(settings, ['max_connections=150', 'listen_addresses=*']),
  );
  const processes = useServiceProcesses();
  let loaded: LoadedServices;
  let first: pg.Client;
  let second: pg.Client;
  let serviceUrl: string;
  let proxy: SilentProxy;
  let control: pg.Client;

  before(async () => {
    const { world } = servers;
    const tenants: TestTenant[] = [];
    for (let n = 0; n < tenantCount; n++) {
      const isOnSecond = serverCount > 1 && n % 2 === 1;
      tenants.push(await world.provision(`tenant-${n}`, isOnSecond ? 'second' : 'default'));
    }
    await world.service.stop();
    serviceUrl = await createServiceLogin(world.environment.DATABASE_URL ?? '', generatePassword());
    proxy = await startSilentProxy();
    loaded = new LoadedServices(budget, processes, tenants);
    first = await loaded.watch(postgresUrl());
    second = await loaded.watch(servers.second.url);
    control = new pg.Client({
      connectionString: world.installation.controlUrl,
      application_name: 'drill',
    });
    await control.connect();
  });
  afterEach(function () {
    console.log({
      test: this.currentTest?.title,
      peaks: loaded.peaks,
      aboveMs: loaded.aboveMs,
      responses: Object.fromEntries(loaded.counts),
    });
    loaded.reset();
  });

  const environmentOf = (url: string) => ({ ...servers.world.environment, DATABASE_URL: url });
  const start = (url = serviceUrl, clients?: number) => loaded.start(environmentOf(url), clients);
  const run = (...args: string[]) =>
    runScript('scripts/tenant.ts', args, servers.world.environment);

  /** Resolves to the time until the process no longer counts as running, in ms. */
  async function untilNotCounted({ process: { pid = 0 } }: LoadedService): Promise<number> {
    const startedAt = performance.now();
    await eventually(async () => {
      const { rowCount } = await control.query(
        `select from processes where pid = $1 and seen_at > clock_timestamp() - interval '5 seconds'`,
        [pid],
      );
      return rowCount === 0;
    });
    return Math.round(performance.now() - startedAt);
  }

  /**
   * Resolves when all running services have had a response since now.
   * @returns after how many ms
   */
  async function untilAllServe(): Promise<number> {
    const startedAt = performance.now();
    for (const service of loaded.services) service.servedAt = undefined;
    await eventually(() => loaded.services.every(({ servedAt }) => servedAt !== undefined), 60_000);
    return Math.round(performance.now() - startedAt);
  }

  it('processes that start at once serve when they listen, and are above the budget for running requests only', async () => {
    await Promise.all(Array.from({ length: serviceCount }, () => start()));
    console.log({ servesAfterMs: await untilAllServe() });
    await delay(5_000);

    loaded.expectWithinBudget(budget - reserve);
    expect(Math.max(...loaded.aboveMs)).to.be.below(3_000);
  });

  it('a process that joins has its share when it listens', async () => {
    const usualMs = await untilAllServe();
    const joined = await start();
    await delay(5_000 + usualMs);

    const servedAfterMs = (joined.servedAt ?? Number.POSITIVE_INFINITY) - joined.listeningAt;
    console.log({ usualMs, servedAfterMs });
    expect(servedAfterMs).to.be.below(3_000 + usualMs);
    loaded.expectWithinBudget();
  });

  it('commands under load end, alone and two at once', async () => {
    const startedAt = performance.now();
    const provision = (slug: string) =>
      run('provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`, '--json');
    const results = [
      await provision('alone'),
      await run('migrate', '--all', '--concurrency', '20'),
      ...(await Promise.all([provision('first'), provision('second')])),
      ...(await Promise.all([run('doctor', '--json'), run('list', '--json'), run('processes')])),
    ];
    console.log({ ms: Math.round(performance.now() - startedAt) });

    // Doctor may have findings of this machine.
    for (const { code, stderr } of results) expect(code, stderr).to.be.below(2);
    loaded.expectWithinBudget();
  });

  it('the share of a killed process is in use after six seconds, and its connections end at once', async () => {
    const inUse = loaded.connections;
    const killed = loaded.services.shift() ?? expect.fail();
    killed.process.kill('SIGKILL');
    const killedAt = performance.now();
    const untilInUse = async (): Promise<number> => {
      // Not all: how many connections are idle differs from moment to moment.
      const isInUse = (): boolean =>
        loaded.connections.every((now, n) => now >= 0.9 * (inUse[n] ?? 0));
      await eventually(() => !isInUse(), 1_000).catch(() => {});
      await eventually(isInUse);
      return Math.round(performance.now() - killedAt);
    };
    const [ms, inUseAfterMs] = await Promise.all([untilNotCounted(killed), untilInUse()]);
    console.log({ notCountedAfterMs: ms, inUse, inUseAfterMs, now: loaded.connections });
    await delay(3_000);

    expect(ms).to.be.below(7_000);
    expect(inUseAfterMs).to.be.below(9_000);
    loaded.expectWithinBudget();
  });

  it('a process that is paused for 30 s holds its share beside that of the others, and goes on within the budget', async () => {
    const [paused = expect.fail()] = loaded.services;
    paused.process.kill('SIGSTOP');
    const ms = await untilNotCounted(paused);
    await delay(30_000 - ms);
    const whilePaused = { peaks: loaded.peaks, responses: Object.fromEntries(loaded.counts) };
    loaded.expectWithinBudget(Math.ceil((budget - reserve) / loaded.services.length));

    loaded.reset();
    paused.process.kill('SIGCONT');
    await delay(2_000);
    loaded.reset();
    await delay(10_000);
    console.log({ notCountedAfterMs: ms, whilePaused });
    loaded.expectWithinBudget();
  });

  it('a process whose path to the control database alone is cut opens no connection to tenants, and comes back', async () => {
    const cut = await start(proxy.through(serviceUrl));
    await delay(4_000);
    const database = decodeURIComponent(new URL(serviceUrl).pathname.slice(1));
    proxy.silence(database);
    const ms = await untilNotCounted(cut);
    await delay(5_000);
    console.log({ notCountedAfterMs: ms });

    // The shares of the others have grown, and its own connections to tenants are closed.
    loaded.expectWithinBudget(minimum);
    cut.process.kill('SIGKILL');
    loaded.services = loaded.services.filter(service => service !== cut);
  });

  it('a minute without control database takes no connection above the budget, and all serve within three seconds', async () => {
    const name = new URL(servers.world.installation.controlUrl).pathname.slice(1);
    await first.query(`alter database ${name} allow_connections false`);
    await first.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name <> 'drill'`,
      [name],
    );
    await delay(60_000);
    loaded.counts.clear();
    await first.query(`alter database ${name} allow_connections true`);

    const ms = await untilAllServe();
    console.log({ servesAfterMs: ms });
    await delay(5_000);
    expect(ms).to.be.below(3_000);
    loaded.expectWithinBudget();
  });

  it('a rolling restart, in which each new process starts before the old one ends, stays within the budget', async () => {
    await loaded.endAll();
    const count = Math.min(serviceCount, mostProcesses - 1);
    for (let n = 0; n < count; n++) await start();
    await untilAllServe();
    loaded.reset();

    const startedAt = performance.now();
    for (let n = 0; n < count; n++) {
      await start();
      await loaded.end(loaded.services[0] ?? expect.fail());
    }
    console.log({ restarted: count, ms: Math.round(performance.now() - startedAt) });
    await delay(5_000);

    loaded.expectWithinBudget();
    expect(loaded.counts.get('cut')).to.equal(undefined);
    await loaded.endAll();
  });

  it('SIGHUP of a service with worker processes, which replaces them one after the other, stays within the budget', async function () {
    if (!redisInstalled) return this.skip();

    const redis = await startRedis();
    const count = Math.min(serviceCount, mostProcesses - 1);
    const settings = { DATABASE_URL: serviceUrl, REDIS_URL: redis.url, PROCESSES: String(count) };
    const workers = await startWorkers(servers.world, settings);
    const service = loaded.load({ ...workers, port: Number(workers.ports.PORT) }, 8 * count);
    try {
      const running = async (): Promise<number[]> => {
        const { rows } = await control.query<{ pid: number }>(
          `select pid from processes where kind = 'service' and seen_at > clock_timestamp() - interval '5 seconds'`,
        );
        return rows.map(({ pid }) => pid);
      };

      await eventually(
        async () => service.servedAt !== undefined && (await running()).length === count,
      );

      const before = await running();
      loaded.reset();

      const startedAt = performance.now();
      workers.process.kill('SIGHUP');
      await eventually(async () => {
        const now = await running();
        return now.length === count && now.every(pid => !before.includes(pid));
      }, count * startMs);
      console.log({ replaced: count, ms: Math.round(performance.now() - startedAt) });
      await delay(5_000);

      loaded.expectWithinBudget();
      expect(loaded.counts.get('cut')).to.equal(undefined);
    } finally {
      await loaded.end(service);
      await redis.close();
    }
  });

  it(`${mostProcesses} processes run and one of them is restarted, and one more is refused`, async () => {
    await loaded.endAll();
    const fit = mostProcesses - 1;
    for (let n = 0; n < fit; n++) await start(serviceUrl, 2);

    const next = await start(serviceUrl, 2);
    const refused = await runScript('src/main.ts', [], {
      ...servers.world.environment,
      DATABASE_URL: serviceUrl,
      PORT: '0',
      MANAGEMENT_PORT: '0',
    });
    await loaded.end(loaded.services[0] ?? expect.fail());
    console.log({
      servedAfterMs: Math.round((next.servedAt ?? Number.NaN) - next.listeningAt),
      stderr: refused.stderr,
    });

    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include(`has room for ${mostProcesses} processes of the service`);
    await delay(5_000);
    loaded.expectWithinBudget(minimum);
    await loaded.endAll();
  });

  it('a machine that vanishes holds its connections for 20 s at most', async function () {
    const machine = LostMachine.create();
    if (!machine) return this.skip();

    const isOpen = async (pid: number): Promise<boolean> =>
      (await second.query('select from pg_stat_activity where pid = $1', [pid])).rowCount === 1;
    try {
      const held = await machine.holdConnection(servers.second.url);
      expect(await isOpen(held)).to.equal(true);
      const startedAt = performance.now();
      machine.vanish();

      await eventually(async () => !(await isOpen(held)));

      const ms = Math.round(performance.now() - startedAt);
      console.log({ goneAfterMs: ms });
      expect(ms).to.be.below(25_000);
    } finally {
      machine.close();
    }
  });
});
