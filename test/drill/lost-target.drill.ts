import { expect } from 'chai';
import pg from 'pg';
import { Tenant } from '../../src/control/control-entities.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import { type RunningScript, startScript } from '../support/command-line.ts';
import { CrashingServer } from '../support/crashing-server.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { startSilentProxy } from '../support/silent-proxy.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const moveArguments = ['move', 'acme', '--to', 'second', '--pause', '60', '--json'];

describe('drill: move whose target dies behind the fence', () => {
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

  const killBehindFence = () => fenced(moveArguments, () => second.crash());

  /** Starts a move, and does something while the run waits behind the fence for a lock in the old database. */
  async function fenced(args: string[], work: () => Promise<unknown>): Promise<RunningScript> {
    const lock = new pg.Client(databaseUrl(postgresUrl(), (await tenant()).databaseName));
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

  /** Returns the name of the database that the last run has reserved for acme. */
  const targetName = async (): Promise<string> => {
    const [target] = await world.control.em.execute<{ name: string }[]>(
      `select d.database_name as name from tenant_databases d join tenants t on t.id = tenant_id
        where slug = 'acme' and d.state = 'reserved' order by d.id desc limit 1`,
    );
    return target?.name ?? '';
  };
  /** Returns the databases and login roles of tenants on the second server. */
  const onSecond = async (): Promise<string[]> =>
    withConnection(second.url, async client => {
      const { rows } = await client.query<{ name: string }>(
        `select distinct name from (select datname as name from pg_database union select rolname from pg_roles) as names
          where name ~ '_tenant_[0-9]+$'`,
      );
      return rows.map(({ name }) => name);
    });

  /** Changes what new databases of the second server are copied from. */
  async function inTemplate(text: string): Promise<void> {
    await withConnection(second.url, async admin => {
      const { rows } = await admin.query<{ name: string }>(
        `select datname as name from pg_database where datname ~ '_template_' and not datallowconn`,
      );
      const name = rows[0]?.name ?? '';
      await admin.query(`alter database "${name}" allow_connections true`);
      await withConnection(databaseUrl(second.url, name), client => client.query(text));
      await admin.query(`alter database "${name}" allow_connections false`);
    });
  }
  /** Lets each new database of the second server refuse new rows as a server does whose disk is full. */
  const withoutRoom = () =>
    inTemplate(`
      create function no_room() returns boolean language plpgsql as $$
        begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
      alter table entity_statuses add constraint no_room check (no_room()) not valid`);
  const withRoom = () => inTemplate('alter table entity_statuses drop constraint no_room; drop function no_room()');

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

  it('a tenant is served by its old server again while the dead one is away, and the move begins anew when it is back', async () => {
    const { ended } = await killBehindFence();
    const { code, stderr } = await ended;
    expect(code).to.equal(1);
    await expectServed();
    expect(stderr).to.include('acme is served by default, as before').and.include('run it again');

    const again = await run(moveArguments);
    expect(again.code).to.equal(1);
    expect(messageOf(again.stderr))
      .to.include('Server second cannot be used')
      .and.include('acme is on default, as before');
    expect(await write()).to.equal(201);

    await second.restart();
    await withoutRoom();
    const full = await run(moveArguments.filter(argument => argument !== '--json'));
    expect([full.code, full.stderr]).to.deep.equal([
      1,
      'The command has stopped (could not extend file: No space left on device): acme is served by default, as ' +
        'before. When all servers work, run it again.\n',
    ]);
    expect(await write()).to.equal(201);
    await withRoom();
    const done = await run(moveArguments);
    expect(done.code, done.stderr).to.equal(0);
    expect((await tenant()).server.name).to.equal('second');
    expect(await onSecond()).to.deep.equal([(await tenant()).databaseName]);
    expect(await write()).to.equal(201);
    const { body } = await acme.get(path, { 'Cache-Control': 'no-cache' });
    expect(body.map(({ Title }: { Title: string }) => Title)).to.include.members(titles);
    expect((await run([...moveArguments.with(3, 'default')])).code).to.equal(0);
    expect((await run(['move', 'settle', 'acme', '--yes'])).code).to.equal(0);
    expect(await onSecond()).to.deep.equal([]);
  });

  it('a tenant whose command dies together with the target is served again without a command, and databases prune drops the rest', async () => {
    const { process: command, ended } = await killBehindFence();
    command.kill('SIGKILL');
    await ended;
    await expectServed();

    const aborted = await eventually(async () => {
      const result = await run(['databases', 'prune', 'acme', '--json']);
      return !result.stderr.includes('Another command works') && result; // the second process still has the lock
    });
    expect(aborted.code).to.equal(1);
    expect(messageOf(aborted.stderr)).to.include('of acme on server second could not be dropped');
    expect(await write()).to.equal(201);
    const [left] = JSON.parse((await run(['databases', '--json'])).stdout);
    expect(left).to.include({ slug: 'acme', server: 'second', state: 'condemned' });
    expect(left.why).to.include('npx backoffice databases prune acme');

    await second.restart();
    const { code, stdout, stderr } = await run(['databases', 'prune', 'acme', '--json']);
    expect(code, stderr).to.equal(0);
    const [dropped] = JSON.parse(stdout);
    expect(dropped).to.include({ slug: 'acme', server: 'second', database: left.database, action: 'drop' });
    expect(await onSecond()).to.deep.equal([]);
    expect(await write()).to.equal(201);
  });

  it('a tenant is served by its old server again while the new one accepts connections and is silent', async () => {
    const proxy = await startSilentProxy(second.url);
    try {
      const added = await run(['server', 'add', 'second'], proxy.through(second.url));
      expect(added.code, added.stderr).to.equal(0);
      const args = ['move', 'acme', '--to', 'second', '--pause', '5', '--json'];
      const { ended } = await fenced(args, async () => proxy.silence(await targetName()));
      const { code, stderr } = await ended;
      expect([code, await write()], stderr).to.deep.equal([1, 201]);
      expect(stderr).to.include('acme is served by default, as before');
    } finally {
      await proxy.close();
    }
  });
});
