import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import type { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';

const max = 8;
const controlConnections = 3; // two, and the change feed
const settings = {
  CONNECTION_BUDGET: String(max + 2 * controlConnections + 1), // one stays free
  CONTROL_CONNECTIONS: '2',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

describe('drill: processes that share a connection budget, and fail', () => {
  let world: World;
  let tenants: TestTenant[];
  let clients: Client[];
  let session: pg.Client;
  let [first, second]: ServiceProcess[] = [];
  let peak = 0;
  let isRunning = true;
  const background: Promise<void>[] = [];
  const processes = createServiceProcesses();
  /** Status codes by URL, since they were last cleared. */
  const statuses = new Map<string, Set<number>>();

  before(async () => {
    world = await createWorld(settings);
    const slugs = ['initech', 'umbrella', 'hooli', 'stark', 'wayne', 'acne', 'tyrell', 'oscorp'];
    tenants = [world.acme, world.globex, ...(await Promise.all(slugs.map(world.provision)))];
    clients = await Promise.all(tenants.map(tenant => world.login(tenant)));
    await world.service.stop();
    session = new pg.Client(postgresUrl());
    await session.connect();
    [first, second] = await Promise.all([start(), start()]);
    await haveShared();
    background.push(watch());
  });
  after(async () => {
    isRunning = false;
    await processes.killAll();
    await Promise.all(background);
    await session.end();
    await world.close();
  });

  async function start(): Promise<ServiceProcess> {
    const service = await processes.start({ ...world.environment, ...settings });
    for (const client of clients) background.push(load(client, service.url));
    return service;
  }

  async function load(client: Client, url: string): Promise<void> {
    while (isRunning) {
      const headers = { Authorization: `Bearer ${client.tokens?.accessToken}`, 'Cache-Control': 'no-cache' };
      const signal = AbortSignal.timeout(2_000);
      const status = await fetch(`${url}/api/v1/EntityStatus`, { headers, signal }).then(
        async response => {
          await response.arrayBuffer();
          return response.status;
        },
        () => 0,
      );
      if (status === 0) await delay(100);
      statuses.set(url, (statuses.get(url) ?? new Set()).add(status));
    }
  }

  async function watch(): Promise<void> {
    while (isRunning) {
      const { rowCount } = await session.query(
        `select from pg_stat_activity where datname = any($1) and application_name like 'backoffice-api %'`,
        [tenants.map(({ database }) => database)],
      );
      peak = Math.max(peak, rowCount ?? 0);
      await delay(20);
    }
  }

  async function grants(): Promise<number[]> {
    const { stdout } = await runScript('scripts/tenant.ts', ['processes', '--json'], world.environment);
    const list: { servers: { granted: number }[] }[] = JSON.parse(stdout);
    return list.flatMap(({ servers }) => servers.map(({ granted }) => granted));
  }

  /** Resolves when both processes have their share, and a new one has had room made for its control connections. */
  async function haveShared(): Promise<void> {
    await eventually(async () => {
      const granted = await grants();
      return granted.length === 2 && granted.reduce((sum, each) => sum + each, 0) <= max;
    });
  }

  /** Resolves when the processes answer every request with 200 for a second. */
  async function serves(...services: (ServiceProcess | undefined)[]): Promise<number> {
    const startedAt = performance.now();
    await eventually(async () => {
      statuses.clear();
      await delay(1_000);
      return services.every(each => each && [...(statuses.get(each.url) ?? [])].join() === '200');
    });
    return performance.now() - startedAt;
  }

  it('two processes under load stay within the budget', async () => {
    console.log({ ms: await serves(first, second) });
    await delay(5_000);
    console.log({ peak });
    expect(peak).to.be.within(max - 1, max);
  });

  it('a process that is stopped for ten seconds and goes on does not take the connections above the budget', async () => {
    first?.process.kill('SIGSTOP');
    await delay(10_000);
    console.log({ grants: await grants() });
    first?.process.kill('SIGCONT');
    console.log({ ms: await serves(first, second), peak });
    // If all of its connections were being opened when it stopped, the server shows none, and the process counts as
    // gone.
    expect(peak).to.be.at.most(max + controlConnections);
  });

  it('the connections of a killed process are usable again after about five seconds', async () => {
    const killedAt = performance.now();
    first?.process.kill('SIGKILL');
    await eventually(async () => {
      const { rows } = await session.query<{ count: string }>(
        `select count(*) from pg_stat_activity where datname = any($1) and application_name like 'backoffice-api %'`,
        [tenants.map(({ database }) => database)],
      );
      return Number(rows[0]?.count) >= max;
    });
    const ms = performance.now() - killedAt;
    console.log({ ms, grants: await grants(), peak });
    expect(ms).to.be.below(7_000);
    expect(peak).to.be.at.most(max + controlConnections);
  });

  it('after ten seconds without control database the processes serve again, within the budget', async () => {
    first = await start();
    await haveShared();
    peak = 0;
    const control = new URL(world.installation.controlUrl).pathname.slice(1);
    await session.query(`alter database ${control} allow_connections false`);
    await session.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [control]);
    await delay(10_000);
    await session.query(`alter database ${control} allow_connections true`);
    const ms = await serves(first, second);
    console.log({ ms, grants: await grants(), peak });
    expect(peak).to.be.at.most(max);
    expect(ms).to.be.below(10_000);
  });
});

describe('drill: a killed process whose tenants are on a server of their own', () => {
  let world: World;
  let server: OwnServer;
  const processes = createServiceProcesses();

  before(async () => {
    [world, server] = await Promise.all([createWorld(settings), startOwnServer('second', ['fsync=off'])]);
  });
  after(async () => {
    await processes.killAll();
    await world.close();
    await server.close();
  });

  it('the successor of a killed process finds its connections gone, and serves the tenants after about five seconds', async () => {
    const run = (args: string[], input = '') => runScript('scripts/tenant.ts', args, world.environment, input);
    await run(['server', 'add', 'second'], server.url);
    const far = await run([
      'provision',
      'far',
      '--name',
      'Far',
      '--admin-email',
      'a@far.test',
      '--server',
      'second',
      '--json',
    ]);
    const client = await world.login(JSON.parse(far.stdout));
    await world.service.stop();
    const start = () => processes.start({ ...world.environment, ...settings, CONNECTION_BUDGET: '4' });
    const isServed = async (url: string): Promise<boolean> =>
      (await client.at(url).get('/api/v1/EntityStatus', { 'Cache-Control': 'no-cache' })).status === 200;
    const { url, process: child, ended } = await start();
    expect(await isServed(url)).to.equal(true);
    child.kill('SIGKILL');
    await ended;
    const successor = await start();
    const startedAt = performance.now();
    await eventually(() => isServed(successor.url));
    const ms = performance.now() - startedAt;
    expect(ms).to.be.below(7_000);
    await eventually(async () => {
      const processes: { servers: object[] }[] = JSON.parse((await run(['processes', '--json'])).stdout);
      return processes.map(({ servers }) => servers.length).join() === '2';
    });
    console.log({ servedAfterMs: ms, isGoneAfterMs: performance.now() - startedAt });
  });
});
