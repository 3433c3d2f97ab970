import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { checkManifest } from '../../src/operator/provisioning/manifest.ts';
import { provision } from '../../src/operator/provisioning/provision.ts';
import { addServer } from '../../src/operator/tenants/servers.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { Watched } from './monitored.ts';

const path = '/api/v1/Currency';

describe('What nobody writes to on another server', () => {
  let world: World;
  let folder: string;
  let second: EmbeddedPostgres;
  let tenant: TestTenant;
  let other: TestTenant;
  /** A record of that tenant, and one of its neighbour, by whose connection the server is watched. */
  let far: Watched;
  let neighbour: Watched;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-second-'));
    const settings = ['fsync=off', 'max_connections=50', 'autovacuum=off'];
    [world, second] = await Promise.all([createWorld(), startEmbeddedPostgres(folder, { settings })]);
    // The first that is watched is the server of the others.
    await (await world.login(world.acme)).get(path);
    await world.service.writeMonitor.poll();
    await addServer(world.installation, 'second', second.url, 100);
    [tenant, far] = await settle('far');
    [other, neighbour] = await settle('neighbour');
  });
  after(async () => {
    // The world removes its tenants from the suite's server; these are not there.
    await world.control.em.fork().execute(`delete from tenants where slug in ('far', 'neighbour')`);
    await world.close();
    await second.leave();
    await rm(folder, { recursive: true, force: true });
  });

  async function settle(slug: string): Promise<[TestTenant, Watched]> {
    const admin = { email: `admin@${slug}.test` };
    const manifest = checkManifest({ slug, name: slug, server: 'second', admin }, slug);
    const { tenant, logins } = await provision(world.installation, world.passwords, manifest);
    const { id, guid, databaseName: database } = tenant;
    const adminUrl = databaseUrl(second.url, database);
    const settled = { id, guid, slug, database, adminUrl, admin: { password: '', ...admin, ...logins[0] } };
    const client = await world.login(settled);
    const { body } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    return [settled, new Watched(world, settled, client, `${path}/${body.Id}`)];
  }

  /** The service keeps the record, and the server is watched by the neighbour's connection. */
  async function keep(): Promise<void> {
    await far.keep();
    await neighbour.readThrough();
    await far.left();
  }

  async function connect(url: string): Promise<pg.Client> {
    const session = new pg.Client(url);
    session.on('error', () => {}); // the server crashes
    await session.connect();
    return session;
  }

  /** The server kills all sessions, forgets what it has counted, and goes on, as it does when one of them dies. */
  async function crash(session: pg.Client): Promise<void> {
    const { rows } = await session.query('select pg_backend_pid() as pid');
    const ended = new Promise(resolve => session.once('end', resolve));
    process.kill(rows[0].pid, 'SIGKILL');
    await ended;
    await eventually(
      () => withConnection(second.url, async client => (await client.query('select 1')).rowCount),
      20_000,
    );
  }

  it('is not read again, and needs no connection but one to the server', async () => {
    await keep();
    const { opened } = far;
    for (let i = 0; i < 3; i++) {
      await far.minute();
      expect(await far.name()).to.equal('Euro');
    }
    expect(far.opened).to.equal(opened);
  });

  it('is known again after a poll has failed', async () => {
    await keep();
    const { opened } = far;
    await neighbour.leave();
    const database = `alter database "${other.database}" allow_connections`;
    await withConnection(second.url, client => client.query(`${database} false`));
    await far.poll();
    expect(world.logs.join('')).to.include('write_monitor_failed');
    await withConnection(second.url, client => client.query(`${database} true`));
    const reopened = far.opened;
    await far.minute();
    expect(await far.name()).to.equal('Euro');
    expect([reopened, far.opened]).to.deep.equal([opened + 1, reopened + 1]); // of the neighbour
  });

  it('is not a database of the same name on a server that nobody asked', async () => {
    const copy = `database "${tenant.database}"`;
    await withConnection(postgresUrl(), client => client.query(`create ${copy}`));
    try {
      await keep();
      await sql(tenant, `update currencies set name = 'only here'`);
      await far.minute();
      expect(await far.name()).to.equal('only here');
    } finally {
      await withConnection(postgresUrl(), client => client.query(`drop ${copy}`));
    }
  });

  it('is not known of a server that does not count', async () => {
    const set = async (statement: string, to: string): Promise<void> => {
      await withConnection(second.url, async client => {
        await client.query(statement);
        await client.query('select pg_reload_conf()');
      });
      const show = () => withConnection(second.url, async client => (await client.query('show track_counts')).rows[0]);
      await eventually(async () => (await show()).track_counts === to);
    };
    await keep();
    await set('alter system set track_counts = off', 'off');
    await sql(tenant, `update currencies set name = 'not counted'`);
    await far.minute();
    await far.minute();
    expect(await far.name()).to.equal('not counted');
    await set('alter system reset track_counts', 'on');
  });

  it('is not what was read while the poll was under way', async () => {
    await keep();
    world.clock.monotonicOffsetMs += 120_000;
    await far.readThrough();
    await neighbour.readThrough();
    const session = await connect(tenant.adminUrl);
    const { rows } = await session.query('select pg_backend_pid() as pid');
    const stopper = await connect(second.url);
    await stopper.query('begin; lock table pg_database in access exclusive mode');
    const polling = far.poll();
    const waiting = `select from pg_locks where not granted and relation = 'pg_database'::regclass`;
    await eventually(async () => (await stopper.query(waiting)).rowCount);
    const before = await far.name();
    await session.query(`update currencies set name = 'while it polls'`);
    expect(await far.name(), 'is kept').to.equal(before);
    await session.end();
    const gone = `select pg_stat_clear_snapshot(); select from pg_stat_get_activity(${rows[0].pid})`;
    await eventually(async () => ((await stopper.query(gone)) as unknown as pg.QueryResult[])[1]?.rowCount === 0);
    await stopper.query('rollback');
    await stopper.end();
    await polling;
    await neighbour.readThrough();
    await far.leave();
    await far.minute();
    expect(await far.name()).to.equal('while it polls');
  });

  it('is not what was read before a crash of the server', async () => {
    await crash(await connect(tenant.adminUrl)); // from here on the counters are the same after each
    await keep();
    const session = await connect(tenant.adminUrl);
    await session.query(`update currencies set name = 'before the crash'`);
    await crash(session);
    await neighbour.readThrough();
    await far.minute();
    expect(await far.name()).to.equal('before the crash');
  });

  it('is not a database that another one has taken the place of', async () => {
    const { database } = tenant;
    await far.left();
    const copy = { ...tenant, database: 'copy', adminUrl: databaseUrl(second.url, 'copy') };
    await withConnection(second.url, client => client.query(`create database copy template "${database}"`));
    await sql(copy, `update currencies set name = 'of the copy'`);
    await crash(await connect(second.url)); // the counters of both are the same
    await keep();
    await withConnection(second.url, async client => {
      await client.query(`alter database "${database}" rename to original`);
      await client.query(`alter database copy rename to "${database}"`);
    });
    await far.minute();
    expect(await far.name()).to.equal('of the copy');
  });
});
