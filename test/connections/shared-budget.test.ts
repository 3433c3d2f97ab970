import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { createServiceProcesses, type ServiceProcess } from '../support/service-processes.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const max = 12;
const controlConnections = 3; // two, and the change feed
const room = 1; // for commands and new processes
const budget = max + 2 * controlConnections + room;
const list = '/api/v1/EntityStatus';
const uncached = { 'Cache-Control': 'no-cache' };
const settings = {
  CONNECTION_BUDGET: String(budget),
  CONTROL_CONNECTIONS: '2',
  ACQUIRE_TIMEOUT_MS: '8000',
  PORT: '0',
  MANAGEMENT_PORT: '0',
};

/**
 * Two processes of the service, one of which is this one. The simulation of the budget and the drills of processes
 * under load prove that they never have more connections together than the budget.
 */
describe('connection budget of several processes', () => {
  let world: World;
  const { start, killAll } = createServiceProcesses();
  let other: ServiceProcess;
  let clients: Client[];

  before(async () => {
    world = await createWorld(settings);
    clients = [await world.login(world.acme), await world.login(world.globex)];
    other = await start(world.environment);
  });
  after(async () => {
    await killAll();
    await world.close();
  });

  const listProcesses = async (): Promise<{ pid: number; servers: { granted: number; held: number }[] }[]> =>
    JSON.parse((await runCommand('scripts/tenant.ts', ['processes', '--json'], world.environment)).stdout);

  it('two processes share the budget of the server, and one that ends cleanly returns its connections to the other', async () => {
    await eventually(async () => {
      const requests = clients.flatMap(client => [world, other].map(({ url }) => client.at(url).get(list, uncached)));
      for (const { status } of await Promise.all(requests)) expect(status).to.equal(200);
      const running = await listProcesses();
      const granted = running.flatMap(({ servers }) => servers.map(server => server.granted));
      return running.length === 2 && Math.min(...granted) >= 2 && sum(granted) <= max;
    });
    expect((await listProcesses()).map(({ pid }) => pid)).to.have.members([process.pid, other.process.pid]);
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

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
