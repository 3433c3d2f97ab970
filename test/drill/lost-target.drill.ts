import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import type { RunningScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { startSilentProxy } from '../support/silent-proxy.ts';
import { TwoServers } from '../support/two-servers.ts';
import { use } from '../support/use.ts';

const path = '/api/v1/EntityStatus';
const there = ['acme', '--to', 'second'];
const moveArguments = ['move', ...there, '--pause', '60', '--json'];

describe('drill: move whose target dies behind the fence', () => {
  const servers = use(() =>
    TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' }, ['synchronous_commit=on']),
  );
  let acme: Client;
  let globex: Client;
  let number = 0;
  const titles: string[] = [];

  before(async () => {
    const { login, ...world } = servers.world;
    [acme, globex] = [await login(world.acme), await login(world.globex)];
  });

  const killBehindFence = () => fenced(there, () => servers.second.crash());

  /**
   * Starts a move, and does something while the run waits behind the fence for a lock in the
   * old database.
   */
  async function fenced(args: string[], work: () => Promise<unknown>): Promise<RunningScript> {
    const lock = new pg.Client(await servers.currentUrl());
    await lock.connect();
    await lock.query('begin; lock table entity_statuses in row exclusive mode');
    const running = await servers.startMove('copy changes', ...args);
    await work();
    await lock.end();
    return running;
  }

  const onSecond = () => servers.namesOn('second');

  /** Changes what new databases of the second server are copied from. */
  async function inTemplate(text: string): Promise<void> {
    await withConnection(servers.second.url, async admin => {
      const { rows } = await admin.query<{ name: string }>(
        `select datname as name from pg_database where datname ~ '_template_' and not datallowconn`,
      );
      const name = rows[0]?.name ?? '';
      await admin.query(`alter database "${name}" allow_connections true`);
      await withConnection(databaseUrl(servers.second.url, name), client => client.query(text));
      await admin.query(`alter database "${name}" allow_connections false`);
    });
  }
  /**
   * Lets each new database of the second server refuse new rows as a server does whose disk is
   * full.
   */
  const withoutRoom = () =>
    inTemplate(`
      create function no_room() returns boolean language plpgsql as $$
        begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
      alter table entity_statuses add constraint no_room check (no_room()) not valid`);
  const withRoom = () =>
    inTemplate('alter table entity_statuses drop constraint no_room; drop function no_room()');

  async function write(): Promise<number> {
    const Title = `status ${++number}`;
    const { status } = await acme.post(path, { Title });
    if (status === 201) titles.push(Title);
    return status;
  }

  async function expectServed(): Promise<void> {
    await eventually(async () => (await write()) === 201);
    expect(await servers.serverOf()).to.equal('default');
    expect((await globex.post(path, { Title: `status ${++number}` })).status).to.equal(201);
  }

  const messageOf = (stderr: string): string =>
    JSON.parse(stderr.trim().split('\n').at(-1) ?? '').error.message;

  it('a tenant is served by its old server again while the dead one is away, and the move begins anew when it is back', async () => {
    const { ended } = await killBehindFence();
    const { code, stderr } = await ended;
    expect(code).to.equal(1);
    await expectServed();
    expect(stderr).to.include('acme is served by default, as before').and.include('run it again');

    const again = await servers.run(moveArguments);
    expect(again.code).to.equal(1);
    expect(messageOf(again.stderr))
      .to.include('Server second cannot be used')
      .and.include('acme is on default, as before');
    expect(await write()).to.equal(201);

    await servers.second.restart();
    await withoutRoom();
    const full = await servers.run(moveArguments.filter(argument => argument !== '--json'));
    expect(full.code, full.stderr).to.equal(1);
    expect(full.stderr).to.equal(
      'The command has stopped (could not extend file: No space left on device): acme is served by default, as ' +
        'before. Free room on its disk, or enlarge it. Then run it again.\n',
    );
    expect(await write()).to.equal(201);

    await withRoom();
    const { newDatabase } = await servers.move(...there);
    expect(await servers.serverOf()).to.equal('second');
    expect(await onSecond()).to.deep.equal([newDatabase]);
    expect(await write()).to.equal(201);

    const { body } = await acme.get(path, { 'Cache-Control': 'no-cache' });
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include.members(titles);

    await servers.move('acme', '--back');
    await servers.runWell(['move', 'settle', 'acme', '--yes']);
    expect(await onSecond()).to.deep.equal([]);
  });

  it('a tenant whose command dies together with the target is served again without a command, and databases prune drops the rest', async () => {
    const { process: command, ended } = await killBehindFence();
    command.kill('SIGKILL');
    await ended;
    await expectServed();

    const aborted = await eventually(async () => {
      const result = await servers.run(['databases', 'prune', 'acme', '--json']);
      // the second process still has the lock
      return !result.stderr.includes('Another command works') && result;
    });
    expect(aborted.code).to.equal(1);
    expect(messageOf(aborted.stderr)).to.include('of acme on server second could not be dropped');
    expect(await write()).to.equal(201);
    const [left] = JSON.parse(await servers.runWell(['databases', '--json']));
    expect(left).to.include({ slug: 'acme', server: 'second', state: 'condemned' });
    expect(left.why).to.include('bin/backoffice databases prune acme');

    await servers.second.restart();
    const [dropped] = JSON.parse(await servers.runWell(['databases', 'prune', 'acme', '--json']));
    expect(dropped).to.include({
      slug: 'acme',
      server: 'second',
      database: left.database,
      action: 'drop',
    });
    expect(await onSecond()).to.deep.equal([]);
    expect(await write()).to.equal(201);
  });

  it('a tenant is served by its old server again while the new one accepts connections and is silent', async () => {
    const { url } = servers.second;
    const proxy = await startSilentProxy(url);

    try {
      await servers.runWell(['server', 'add', 'second'], proxy.through(url));

      const { ended } = await fenced([...there, '--pause', '5'], async () => {
        const target = (await servers.databases()).find(({ state }) => state === 'reserved');
        proxy.silence(target?.database ?? '');
      });

      const { code, stderr } = await ended;
      expect(code, stderr).to.equal(1);
      expect(await write(), stderr).to.equal(201);
      expect(stderr).to.include('acme is served by default, as before');
    } finally {
      await proxy.close();
    }
  });
});
