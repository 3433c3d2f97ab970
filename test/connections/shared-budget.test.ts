import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import type { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, createWorld, type TestTenant, type World } from '../support/world.ts';

const max = 12;
const controlConnections = 3; // two, and the change feed
const room = 1; // for commands and new processes
const budget = max + 2 * controlConnections + room;
/** Between two requests of a client: the clients use every connection, and leave CPU time to the commands. */
const pauseMs = 1_000;
const settings = {
  CONNECTION_BUDGET: String(budget),
  CONTROL_CONNECTIONS: '2',
  ACQUIRE_TIMEOUT_MS: '8000',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

/** Two processes of the service, the other of which is this one, and commands. */
describe('connection budget of several processes', () => {
  let world: World;
  let tenants: TestTenant[];
  const { start, killAll } = createServiceProcesses();
  let other: ServiceProcess;
  let clients: Client[];

  before(async () => {
    world = await createWorld(settings);
    const more = await Promise.all(['initech', 'umbrella', 'hooli', 'stark', 'wayne'].map(world.provision));
    tenants = [world.acme, world.globex, ...more];
    clients = await Promise.all(tenants.map(tenant => world.login(tenant)));
    other = await start(world.environment);
  });
  after(async () => {
    await killAll();
    await world.close();
  });

  /**
   * Runs `work` under load, and counts the connections of the installation, those to the control database included.
   * A process to which nothing is granted, because it has just started, waits for others to give back or is about to
   * end, may have a single connection. These are `entering`.
   */
  async function underLoad(work: () => Promise<void>) {
    const controlDatabase = String(world.control.config.get('dbName'));
    const session = new pg.Client(databaseUrl(postgresUrl(), controlDatabase));
    await session.connect();
    const databases = [...tenants.map(({ database }) => database), controlDatabase];
    const seen = new Set<string>();
    let [peak, tenantPeak, enteringPeak] = [0, 0, 0];
    let isRunning = true;
    const sample = async (): Promise<void> => {
      while (isRunning) {
        const { rows } = await session.query<{ name: string; granted: boolean }>(
          `select application_name as name, right(application_name, 36) in (
                    select process::text from connection_grants where granted + reserved > 0) as granted
             from pg_stat_activity
            where (datname = any($1) or datname = 'postgres') and application_name ~ '^backoffice-[a-z-]+ [0-9a-f-]{36}$'`,
          [databases],
        );
        const names = rows.map(({ name }) => name).filter(name => name.startsWith('backoffice-api'));
        for (const name of names) seen.add(name);
        const entering = rows.filter(({ granted }) => !granted).map(({ name }) => name.slice(-36));
        peak = Math.max(peak, rows.length - entering.length);
        tenantPeak = Math.max(tenantPeak, names.length);
        for (const id of entering) enteringPeak = Math.max(enteringPeak, entering.filter(other => other === id).length);
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
    const load = [
      sample(),
      ...[world, other].flatMap(({ url }) => [...clients, ...clients].map(client => request(url, client))),
    ];
    try {
      await work();
    } finally {
      isRunning = false;
      await Promise.all(load);
      await session.end();
    }
    return { peak, tenantPeak, enteringPeak, seen, statuses: [...statuses] };
  }

  const heldBy = (running: Awaited<ReturnType<typeof listProcesses>>): number =>
    sum(running.flatMap(({ servers }) => servers.map(({ held }) => held)));
  const listProcesses = async (): Promise<{ pid: number; servers: { granted: number; held: number }[] }[]> =>
    JSON.parse((await runCommand('scripts/tenant.ts', ['processes', '--json'], world.environment)).stdout);

  it('commands and two processes under load never have more connections together than the budget of the server', async () => {
    const { peak, tenantPeak, enteringPeak, seen, statuses } = await underLoad(async () => {
      // A machine that pauses a process for seconds makes it lose its grant for a moment. That changes no maximum.
      await eventually(async () => {
        const running = await listProcesses();
        const granted = running.flatMap(({ servers }) => servers.map(server => server.granted));
        const isShared = granted.length === 2 && Math.min(...granted) >= 2 && sum(granted) <= max;
        return isShared && heldBy(running) >= max - 2 && heldBy(running) <= max;
      });
      const pids = (await listProcesses()).map(({ pid }) => pid);
      expect(pids).to.have.members([process.pid, other.process.pid]);
      const run = (...args: string[]) => runScript('scripts/tenant.ts', args, world.environment);
      const migrated = run('migrate', '--all', '--concurrency', '20');
      const results = await Promise.all([migrated, run('key', 'rotate', 'acme')]);
      for (const { code, stdout, stderr } of results) expect(code, stdout + stderr).to.equal(0);
    });
    expectServed(statuses);
    expect(peak).to.be.at.most(budget);
    expect(enteringPeak).to.be.at.most(1);
    // Tenants take turns, so at each moment some connections are being opened and closed, which PostgreSQL does not
    // show.
    expect(tenantPeak).to.be.at.least(max / 2);
    expect(seen.size, 'both processes had connections').to.equal(2);
    await eventually(async () => (await listProcesses()).length === 2);
  });

  it('a process that ends cleanly returns its connections, and the other one gets all of them', async () => {
    other.process.kill('SIGINT');
    await other.ended;
    await eventually(async () => {
      const [left, ...others] = await listProcesses();
      return others.length === 0 && (left?.servers[0]?.granted ?? 0) >= max + controlConnections;
    });
    const { stdout } = await runCommand('scripts/tenant.ts', ['server', 'list', '--json'], world.environment);
    const [server] = JSON.parse(stdout);
    expect(server.granted).to.be.at.least(max);
    expect(server.held).to.be.at.most(server.granted);
    expect(server.wanted).to.be.a('number');
  });

  it('a command waits for the connections of a process that is gone, and tells what it waits for', async () => {
    await world.service.stop();
    await controlSql(
      world,
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

/** While a process has lost its grant, because the machine paused it, its requests may get 503. No other one may fail. */
function expectServed(statuses: number[]): void {
  expect(statuses).to.include(200);
  expect([200, 503]).to.include.members(statuses);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
