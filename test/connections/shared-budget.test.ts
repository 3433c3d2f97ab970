import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import type { Client } from '../support/client.ts';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';

const max = 12;
const controlConnections = 3; // two, and the change feed
const room = 1; // for commands and new processes
const budget = max + 2 * controlConnections + room;
/** Between two requests of a client: the clients use every connection, and leave CPU time to the commands. */
const pauseMs = 150;
const settings = {
  CONNECTION_BUDGET: String(budget),
  CONTROL_CONNECTIONS: '2',
  ACQUIRE_TIMEOUT_MS: '8000',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

/** Two processes of the service, and commands. */
describe('connection budget of several processes', () => {
  let world: World;
  let tenants: TestTenant[];
  const processes: RunningScript[] = [];
  let urls: string[];
  let clients: Client[];

  before(async () => {
    world = await createWorld(settings);
    const more = await Promise.all(['initech', 'umbrella', 'hooli', 'stark', 'wayne', 'acne'].map(world.provision));
    tenants = [world.acme, world.globex, ...more];
    clients = await Promise.all(tenants.map(tenant => world.login(tenant)));
    await world.service.stop(); // now only the two processes share the budget
    urls = await Promise.all([start(), start()]);
  });
  after(async () => {
    for (const { process: child } of processes) child.kill('SIGKILL');
    await Promise.all(processes.map(({ ended }) => ended));
    await world.close();
  });

  async function start(): Promise<string> {
    const running = startScript('src/main.ts', [], { ...world.environment, ...settings });
    processes.push(running);
    const port = await eventually(() => /"port":(\d+)/.exec(running.output.stdout)?.[1], 60_000);
    return `http://127.0.0.1:${port}`;
  }

  /** Runs `work` under load, and counts the connections of the installation, those to the control database included. */
  async function underLoad(work: () => Promise<void>) {
    const session = new pg.Client(postgresUrl());
    await session.connect();
    const databases = [...tenants.map(({ database }) => database), world.control.config.get('dbName')];
    const seen = new Set<string>();
    let [peak, tenantPeak] = [0, 0];
    let isRunning = true;
    const sample = async (): Promise<void> => {
      while (isRunning) {
        const { rows } = await session.query<{ name: string }>(
          `select application_name as name from pg_stat_activity
            where (datname = any($1) or datname = 'postgres') and application_name ~ '^backoffice-[a-z-]+ [0-9a-f-]{36}$'`,
          [databases],
        );
        const names = rows.map(({ name }) => name).filter(name => name.startsWith('backoffice-api'));
        for (const name of names) seen.add(name);
        peak = Math.max(peak, rows.length);
        tenantPeak = Math.max(tenantPeak, names.length);
        await delay(20);
      }
    };
    const statuses = new Set<number>();
    const request = async (url: string, client: Client): Promise<void> => {
      while (isRunning) {
        statuses.add((await client.at(url).get('/api/v1/EntityStatus', { 'Cache-Control': 'no-cache' })).status);
        await delay(pauseMs);
      }
    };
    const load = [sample(), ...urls.flatMap(url => [...clients, ...clients].map(client => request(url, client)))];
    await work();
    isRunning = false;
    await Promise.all(load);
    await session.end();
    return { peak, tenantPeak, seen, statuses: [...statuses] };
  }

  const listProcesses = async (): Promise<{ pid: number; servers: { granted: number; held: number }[] }[]> =>
    JSON.parse((await runCommand('scripts/tenant.ts', ['processes', '--json'], world.environment)).stdout);

  it('two processes under load never have more connections together than the budget of the server', async () => {
    let running: Awaited<ReturnType<typeof listProcesses>> = [];
    const { peak, tenantPeak, seen, statuses } = await underLoad(async () => {
      await delay(3_000);
      running = await listProcesses();
    });
    expect(statuses).to.deep.equal([200]);
    expect(peak).to.be.at.most(budget);
    // Tenants take turns, so at each moment some connections are being opened and closed, which PostgreSQL does not show.
    expect(tenantPeak).to.be.within(max / 2, max);
    expect(seen.size, 'both processes had connections').to.equal(2);
    expect(running.map(({ pid }) => pid).sort()).to.deep.equal(processes.map(({ process: { pid } }) => pid).sort());
    const servers = running.flatMap(({ servers }) => servers);
    const held = servers.map(server => server.held);
    expect(held.reduce((sum, each) => sum + each, 0)).to.be.within(max - 2, max);
    const granted = servers.map(server => server.granted);
    expect(granted.reduce((sum, each) => sum + each, 0)).to.be.at.most(max);
    expect(Math.min(...granted)).to.be.at.least(2);
  });

  it('commands and two processes under load never have more connections together than the budget', async () => {
    const run = (...args: string[]) => runScript('scripts/tenant.ts', args, world.environment);
    const { peak, statuses } = await underLoad(async () => {
      const provisioned = ['provision', 'late', '--name', 'Late', '--admin-email', 'a@late.test'];
      const results = await Promise.all([run(...provisioned), run('key', 'rotate', 'acme'), run('list', '--json')]);
      results.push(await run('migrate', '--all', '--concurrency', '20'));
      for (const { code, stdout, stderr } of results) expect(code, stdout + stderr).to.equal(0);
    });
    expect(statuses).to.deep.equal([200]);
    expect(peak).to.be.at.most(budget);
    await eventually(async () => (await listProcesses()).length === 2);
  });

  it('a process that ends cleanly returns its connections, and the other one gets all of them', async () => {
    processes[0]?.process.kill('SIGINT');
    await processes[0]?.ended;
    await eventually(async () => {
      const [process, ...others] = await listProcesses();
      return others.length === 0 && (process?.servers[0]?.granted ?? 0) >= max + controlConnections;
    });
    const { stdout } = await runCommand('scripts/tenant.ts', ['server', 'list', '--json'], world.environment);
    const [server] = JSON.parse(stdout);
    expect(server.granted).to.be.at.least(max);
    expect(server.held).to.be.at.most(server.granted);
    expect(server.wanted).to.be.a('number');
  });

  it('a command waits for the connections of a process that is gone, and tells what it waits for', async () => {
    for (const { process: child } of processes) child.kill('SIGINT');
    await Promise.all(processes.map(({ ended }) => ended));
    await world.control.em.fork().execute(
      `insert into connection_grants (server, process, granted, held, wanted, reserved, budget, heartbeat)
       select server, gen_random_uuid(), ${budget}, 0, 0, 0, ${budget}, 1 from connection_servers limit 1`,
    );
    const { code, stderr } = await runScript('scripts/tenant.ts', ['key', 'rotate', 'acme'], world.environment);
    expect(stderr).to.match(
      /^Warning: Waiting up to 30 s until a connection to 127\.0\.0\.1:\d+ is free within CONNECTION/,
    );
    expect(code).to.equal(0);
    expect(await listProcesses()).to.deep.equal([]);
  });
});
