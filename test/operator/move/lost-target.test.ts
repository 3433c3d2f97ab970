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
import { startSilentProxy } from '../../support/silent-proxy.ts';
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

  const killBehindFence = () => fenced(postgresUrl(), moveArguments, () => second.crash());

  /** Starts a move, and does something while the run waits behind the fence for a lock in the old database. */
  async function fenced(oldServer: string, args: string[], work: () => Promise<unknown>): Promise<RunningScript> {
    const lock = new pg.Client(databaseUrl(oldServer, (await tenant()).databaseName));
    await lock.connect();
    await lock.query('begin; lock table entity_statuses in row exclusive mode');
    const running = startScript('scripts/tenant.ts', args, world.environment);
    await eventually(
      () => running.output.stdout.includes('"step":"copy changes"') || running.process.exitCode !== null,
    );
    await work();
    await lock.end();
    return running;
  }

  const targetName = async (): Promise<string> => {
    const [move] = await world.control.em.execute<{ name: string }[]>(
      'select to_database as name from tenant_moves order by id desc limit 1',
    );
    return move?.name ?? '';
  };
  const inTarget = async (text: string): Promise<void> => {
    await withConnection(databaseUrl(second.url, await targetName()), client => client.query(text));
  };
  /** Lets the target refuse each new row as a server does whose disk is full. */
  const withoutRoom = () =>
    inTarget(`
      create function no_room() returns boolean language plpgsql as $$
        begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
      alter table entity_statuses add constraint no_room check (no_room()) not valid`);
  const withRoom = () => inTarget('alter table entity_statuses drop constraint no_room; drop function no_room()');

  async function write(): Promise<number> {
    const Title = `status ${++number}`;
    const { status } = await acme.post(path, { Title });
    if (status === 201) titles.push(Title);
    return status;
  }

  async function expectServed(): Promise<void> {
    await eventually(async () => (await write()) === 201);
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
    await withoutRoom();
    const full = await run(['move', 'resume', 'acme']);
    expect([full.code, full.stderr]).to.deep.equal([
      1,
      'The move of acme from default to second has stopped (could not extend file: No space left on device): acme is ' +
        'served by default, as before. When both servers work, go on: npx backoffice move resume acme\n',
    ]);
    expect(await write()).to.equal(201);
    await withRoom();
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

  it('a tenant is served by its old server again while the new one is silent, and accepts connections', async () => {
    expect((await run(moveArguments)).code).to.equal(0);
    const proxy = await startSilentProxy();
    try {
      const added = await run(['server', 'add', 'quiet'], proxy.through(postgresUrl()));
      expect(added.code, added.stderr).to.equal(0);
      const args = ['move', 'acme', '--to', 'quiet', '--pause', '5', '--json'];
      const { ended } = await fenced(second.url, args, async () => proxy.silence(await targetName()));
      const { code, stderr } = await ended;
      expect([code, await write()], stderr).to.deep.equal([1, 201]);
      expect(stderr).to.include('acme is served by second, as before');
    } finally {
      await proxy.close();
    }
  });
});
