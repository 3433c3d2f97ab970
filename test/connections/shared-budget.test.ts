import { expect } from 'chai';
import pg from 'pg';
import { type RunningScript, runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';

const max = 6;
const controlConnections = 3; // two, and the change feed
const settings = {
  CONNECTION_BUDGET: String(max + 2 * controlConnections),
  CONTROL_CONNECTIONS: '2',
  ACQUIRE_TIMEOUT_MS: '8000',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

/** Two processes of the service, beside the server of the world, which has no load. */
describe('connection budget of several processes', () => {
  let world: World;
  let tenants: TestTenant[];
  const processes: RunningScript[] = [];

  before(async () => {
    world = await createWorld(settings);
    const more = await Promise.all(['initech', 'umbrella', 'hooli', 'stark', 'wayne', 'acne'].map(world.provision));
    tenants = [world.acme, world.globex, ...more];
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

  const listProcesses = async (): Promise<{ pid: number; servers: { granted: number }[] }[]> =>
    JSON.parse((await runScript('scripts/tenant.ts', ['processes', '--json'], world.environment)).stdout);

  it('two processes under load never have more connections together than the budget of the server', async () => {
    const clients = await Promise.all(tenants.map(tenant => world.login(tenant)));
    await world.service.stop(); // now only the two processes share the budget
    const urls = await Promise.all([start(), start()]);
    // The connections of a new process to the control database count from when the others have made room for them.
    await eventually(async () => {
      const granted = (await listProcesses()).flatMap(({ servers }) => servers.map(server => server.granted));
      return granted.length === 2 && granted.reduce((sum, each) => sum + each, 0) <= max;
    });
    const session = new pg.Client(postgresUrl());
    await session.connect();
    let peak = 0;
    const seen = new Set<string>();
    const sample = async (): Promise<void> => {
      const { rows } = await session.query<{ name: string }>(
        `select application_name as name from pg_stat_activity
          where datname = any($1) and application_name like 'backoffice-api %'`,
        [tenants.map(({ database }) => database)],
      );
      for (const { name } of rows) seen.add(name);
      peak = Math.max(peak, rows.length);
    };
    const statuses = new Map<number, number>();
    let isRunning = true;
    const load = urls.flatMap(url =>
      clients.map(async client => {
        while (isRunning) {
          const { status } = await client.at(url).get('/api/v1/EntityStatus', { 'Cache-Control': 'no-cache' });
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
        }
      }),
    );
    const end = performance.now() + 4_000;
    while (performance.now() < end) {
      await sample();
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    const running = await listProcesses();
    isRunning = false;
    await Promise.all(load);
    await session.end();
    expect([...statuses.keys()]).to.deep.equal([200]);
    expect(peak).to.be.at.most(max);
    expect(peak).to.be.at.least(max - 1);
    expect(seen.size, 'both processes had connections').to.equal(2);
    expect(running.map(({ pid }) => pid).sort()).to.deep.equal(processes.map(({ process: { pid } }) => pid).sort());
    const granted = running.flatMap(({ servers }) => servers.map(server => server.granted));
    expect(granted.reduce((sum, each) => sum + each, 0)).to.be.at.most(max);
    expect(Math.min(...granted)).to.be.at.least(2);
  });

  it('a process that ends cleanly returns its connections, and the other one gets all of them', async () => {
    processes[0]?.process.kill('SIGINT');
    await processes[0]?.ended;
    await eventually(async () => {
      const [process, ...others] = await listProcesses();
      return others.length === 0 && (process?.servers[0]?.granted ?? 0) >= max;
    });
    const { stdout } = await runScript('scripts/tenant.ts', ['server', 'list', '--json'], world.environment);
    const [server] = JSON.parse(stdout);
    expect(server.granted).to.be.at.least(max);
    expect(server.held).to.be.at.most(server.granted);
    expect(server.wanted).to.be.a('number');
  });
});
