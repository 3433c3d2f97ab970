import { expect } from 'chai';
import pg from 'pg';
import { Tenant } from '../../../src/control/fleet-entities.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { type RunningScript, startScript } from '../../support/command-line.ts';
import { CrashingServer } from '../../support/crashing-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
const moveArguments = ['move', 'acme', '--to', 'second', '--pause', '60', '--json'];

describe('move whose target dies behind the fence', () => {
  let world: World;
  let second: CrashingServer;
  let acme: Client;
  let globex: Client;
  let number = 0;
  const titles: string[] = [];

  before(async () => {
    [world, second] = await Promise.all([createWorld({ ACQUIRE_TIMEOUT_MS: '9000' }), CrashingServer.start('second')]);
    const added = await run(['server', 'add', 'second'], second.url);
    expect(added.code, added.stderr).to.equal(0);
    [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
  });
  after(async () => {
    await world.close();
    await second.close();
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);
  const tenant = () => world.control.em.fork().findOneOrFail(Tenant, { slug: 'acme' }, { populate: ['server'] });

  /** Starts the move, and kills its target while the run waits behind the fence for a lock. */
  async function killBehindFence(): Promise<RunningScript> {
    const lock = new pg.Client(databaseUrl(postgresUrl(), (await tenant()).databaseName));
    await lock.connect();
    await lock.query('begin; lock table entity_statuses in row exclusive mode');
    const running = startScript('scripts/tenant.ts', moveArguments, world.environment);
    await eventually(
      () => running.output.stdout.includes('"step":"copy changes"') || running.process.exitCode !== null,
    );
    await second.crash();
    await lock.end();
    return running;
  }

  async function write(): Promise<number> {
    const Title = `status ${++number}`;
    const { status } = await acme.post(path, { Title });
    if (status === 201) titles.push(Title);
    return status;
  }

  async function expectServed(): Promise<void> {
    await eventually(async () => (await write()) === 201, 30_000);
    expect((await tenant()).server.name).to.equal('default');
    expect((await globex.post(path, { Title: `status ${++number}` })).status).to.equal(201);
  }

  const messageOf = (stderr: string): string => JSON.parse(stderr.trim().split('\n').at(-1) ?? '').error.message;

  it('a tenant is served by its old server again while the dead one is away, and the move goes on when it is back', async () => {
    const { ended } = await killBehindFence();
    const { code, stderr } = await ended;
    expect(code).to.equal(1);
    await expectServed();
    expect(stderr).to.include('acme is served by default, as before').and.include('npx backoffice move resume acme');

    const resumed = await run(['move', 'resume', 'acme', '--json']);
    expect(resumed.code).to.equal(1);
    expect(messageOf(resumed.stderr)).to.include('second').and.include('acme is served by default, as before');
    expect(await write()).to.equal(201);

    await second.restart();
    const { code: done, stderr: error } = await run(['move', 'resume', 'acme', '--json']);
    expect(done, error).to.equal(0);
    expect((await tenant()).server.name).to.equal('second');
    expect(await write()).to.equal(201);
    const { body } = await acme.get(path, { 'Cache-Control': 'no-cache' });
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include.members(titles);
    expect((await run([...moveArguments.with(3, 'default')])).code).to.equal(0);
    expect((await run(['move', 'settle', 'acme', '--yes'])).code).to.equal(0);
  });

  it('a command that dies together with the target leaves a tenant that is served again by itself, and that abort frees', async () => {
    const { process: command, ended } = await killBehindFence();
    command.kill('SIGKILL');
    await ended;
    await expectServed();

    const aborted = await eventually(async () => {
      const result = await run(['move', 'abort', 'acme', '--json']);
      return !result.stderr.includes('Another command works') && result; // the second process still has the lock
    });
    expect(aborted.code).to.equal(1);
    expect(messageOf(aborted.stderr)).to.include('acme is served by default, as before');
    expect(aborted.stderr).to.include('npx backoffice move abort acme');
    expect(await write()).to.equal(201);

    await second.restart();
    const { code, stdout, stderr } = await run(['move', 'abort', 'acme', '--json']);
    expect(code, stderr).to.equal(0);
    const { state, newDatabase } = JSON.parse(stdout);
    expect(state).to.equal('aborted');
    const left = await withConnection(second.url, client =>
      client.query('select from pg_database where datname = $1', [newDatabase]),
    );
    expect(left.rowCount).to.equal(0);
    expect(await write()).to.equal(201);
  });
});
