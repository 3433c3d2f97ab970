import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { DatabaseStep } from '../../src/operator/databases/database-protocol.ts';
import type { ListedDatabase } from '../../src/operator/databases/list-databases.ts';
import type { MoveSummary } from '../../src/operator/databases/move-tenant.ts';
import type { Client } from '../support/client.ts';
import { startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { createServiceProcesses } from '../support/service-processes.ts';
import { createWorld, type World } from '../support/world.ts';
import { notWrittenOnce } from '../support/written-once.ts';

const path = '/api/v1/EntityStatus';
/** The steps before which the command is killed, as it prints them. */
const steps = [
  'reserve',
  'create',
  'fill',
  'claim current',
  'announce fence',
  'copy ahead',
  'close fence',
  'wait for processes',
  'close current',
  'end sessions',
  'copy changes',
  'exchange',
  'open current',
  'serve',
] satisfies DatabaseStep[];

describe('drill: moves of a tenant', () => {
  let world: World;
  let second: OwnServer;
  let acme: Client;
  const processes = createServiceProcesses();
  const acknowledged = new Set<string>();
  let failures: string[] = [];
  let isOver = false;
  let writing: Promise<unknown>;
  let writers: Client[] = [];
  let number = 0;

  before(async function () {
    this.timeout(120_000);
    [world, second] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000' }),
      startOwnServer('second', ['fsync=off', 'max_connections=60']),
    ]);
    await run(['server', 'add', 'second'], second.url);
    acme = await world.login(world.acme);
    writers = [acme];
    writing = Promise.all([write(0), write(0)]);
  });
  after(async () => {
    isOver = true;
    await writing;
    await processes.killAll();
    await world.close();
    await second.close();
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);

  /** Writes until the drill ends, 25 times a second at most. */
  async function write(index: number): Promise<void> {
    while (!isOver) {
      const client = writers[(index + number) % writers.length] as Client;
      const Title = `status ${++number}`;
      const { status, body } = await client
        .post(path, { Title })
        .catch(error => ({ status: 0, body: { title: String(error) } }));
      if (status === 201) acknowledged.add(Title);
      else failures.push(`${status} ${body.title}`);
      await sleep(40);
    }
  }

  async function expectAllWrites(): Promise<void> {
    const known = [...acknowledged];
    const { body } = await acme.get(path, { 'Cache-Control': 'no-cache' });
    expect(notWrittenOnce(known, body)).to.deep.equal([]);
  }

  const otherServer = async (): Promise<string> => {
    const { server } = JSON.parse((await run(['show', 'acme', '--json'])).stdout);
    return server === 'second' ? 'default' : 'second';
  };

  async function move(...more: string[]): Promise<MoveSummary> {
    const { code, stdout, stderr } = await run([
      'move',
      'acme',
      '--to',
      await otherServer(),
      '--pause',
      '60',
      '--json',
      ...more,
    ]);
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  }

  for (const step of steps)
    it(`a command that is killed before the step ${step} is replaced by the next one, no write is lost, and nothing of it is left`, async function () {
      this.timeout(120_000);
      const target = await otherServer();
      const args = ['move', 'acme', '--to', target, '--pause', '60', '--json'];
      const running = startScript('scripts/tenant.ts', args, world.environment);
      await eventually(() => running.output.stdout.includes(`"step":"${step}"`) || running.process.exitCode !== null);
      running.process.kill('SIGKILL');
      await running.ended;
      // A process that outlives the command puts the tenant back into service.
      const killedAt = performance.now();
      const serves = async () =>
        (await acme.post(path, { Title: `killed before ${step}: ${++number}` })).status === 201;
      await eventually(serves, 60_000);
      console.log(`served ${Math.round(performance.now() - killedAt)} ms after the kill`);
      const again = await run(['move', 'acme', '--to', target, '--pause', '60', '--json']);
      if (again.code !== 0) expect(again.stderr).to.include('is on');
      expect((await run(['show', 'acme', '--json'])).stdout).to.include(`"server": "${target}"`);
      expect((await acme.post(path, { Title: `moved after ${step}` })).status).to.equal(201);
      await expectAllWrites();
      const pruned = await run(['databases', 'prune', 'acme', '--json']);
      expect(pruned.code, pruned.stderr).to.equal(0);
      const { stdout } = await run(['databases', 'acme', '--json']);
      const states = JSON.parse(stdout).map(({ state, server }: ListedDatabase) => `${state} ${server}`);
      const former = target === 'second' ? 'default' : 'second';
      expect(states).to.have.members([`current ${target}`, `kept ${former}`]);
    });

  it('a tenant whose move is killed with the process that outlives it gets 503, and databases prune ends that', async function () {
    this.timeout(120_000);
    const args = ['move', 'acme', '--to', await otherServer(), '--pause', '60', '--json'];
    const running = startScript('scripts/tenant.ts', args, world.environment);
    await eventually(() => running.output.stdout.includes('"step":"fill"'), 60_000);
    const children = spawnSync('ps', ['-o', 'pid=', '--ppid', String(running.process.pid)]).stdout.toString();
    await eventually(() => running.output.stdout.includes('"step":"close current"'), 60_000);
    for (const pid of children.trim().split(/\s+/)) process.kill(Number(pid), 'SIGKILL');
    running.process.kill('SIGKILL');
    await running.ended;
    await eventually(() => world.logs.join('').includes('fence_overdue'), 30_000);
    expect((await acme.post(path, { Title: 'behind the fence' })).status).to.equal(503);
    const pruned = await run(['databases', 'prune', 'acme', '--json']);
    expect(pruned.code, pruned.stderr).to.equal(0);
    expect((await acme.post(path, { Title: 'after the retreat' })).status).to.equal(201);
    await expectAllWrites();
  });

  it('a process of the service that is killed during a move delays it by a few seconds at most', async function () {
    this.timeout(120_000);
    const { url, process: child } = await processes.start(world.environment);
    expect((await acme.at(url).get(path)).status).to.equal(200);
    failures = [];
    const moving = move();
    await sleep(1_500);
    child.kill('SIGKILL');
    const { pauseMs } = await moving;
    expect(pauseMs).to.be.below(4_000);
    await expectAllWrites();
    expect(failures).to.deep.equal([]);
  });

  it('a process that is stopped over the switch writes nothing to the old database, and goes on in the new one', async function () {
    this.timeout(120_000);
    const { url, process: child } = await processes.start(world.environment);
    const stopped = acme.at(url);
    expect((await stopped.post(path, { Title: 'before the stop' })).status).to.equal(201);
    child.kill('SIGSTOP');
    const late = Array.from({ length: 5 }, (_, index) => stopped.post(path, { Title: `late ${index}` }));
    await sleep(4_000); // longer than a process without a heartbeat is waited for
    const { oldDatabase, from } = await move('--keep', '24');
    child.kill('SIGCONT');
    for (const [index, { status }] of (await Promise.all(late)).entries())
      if (status === 201) acknowledged.add(`late ${index}`);
    await eventually(async () => (await stopped.post(path, { Title: 'after the stop' })).status === 201);
    await expectAllWrites();
    expect(oldDatabase).to.be.a('string');
    expect(from).to.be.oneOf(['default', 'second']);
  });
});
