import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { addServer } from '../../src/operator/tenants/servers.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { readLockWaiters } from '../support/lock-waiters.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { MonitoredRecord } from './monitored-record.ts';

const path = '/api/v1/Currency';

describe('write monitor of another server', () => {
  let world: World;
  let second: OwnServer;
  let tenant: TestTenant;
  let other: TestTenant;
  let record: MonitoredRecord;
  /** A record of the other tenant, on whose connection the monitor polls the server. */
  let otherRecord: MonitoredRecord;

  before(async () => {
    // A test ends the server like a crash, which must lose no commit: synchronous_commit stays on.
    const settings = ['fsync=off', 'max_connections=50', 'autovacuum=off'];
    [world, second] = await Promise.all([createWorld(), startOwnServer('second', settings)]);
    // First, the monitor polls the server of the control database and of acme.
    await (await world.login(world.acme)).get(path);
    await world.service.writeMonitor.poll();
    await addServer(world.installation, 'second', second.url, 100);
    [tenant, record] = await provisionOnSecond('far');
    [other, otherRecord] = await provisionOnSecond('neighbour');
  });
  after(async () => {
    // The world drops the databases of its tenants from the server of the suite, which does not have these.
    for (const text of [
      `delete from tenant_databases d using tenants t where t.id = tenant_id and slug in ('far', 'neighbour')`,
      `delete from tenants where slug in ('far', 'neighbour')`,
    ])
      await controlSql(world, text);
    await world.close();
    await second.close();
  });

  async function provisionOnSecond(slug: string): Promise<[TestTenant, MonitoredRecord]> {
    const tenant = await world.provision(slug, 'second');
    const provisioned = { ...tenant, adminUrl: databaseUrl(second.url, tenant.database) };
    const client = await world.login(provisioned);
    const { body } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    return [provisioned, new MonitoredRecord(world, provisioned, client, `${path}/${body.Id}`)];
  }

  /** Makes the service cache the record, with a connection to the database of the other tenant and none to this one. */
  async function cacheRecord(): Promise<void> {
    await record.cacheAndDisconnect();
    await otherRecord.readUncached();
    await record.disconnectAll();
  }

  async function connect(url: string): Promise<pg.Client> {
    const session = new pg.Client(url);
    session.on('error', () => {}); // some tests crash the server
    await session.connect();
    return session;
  }

  /** Kills the process of a session: the server then ends all sessions, loses its counters, and recovers. */
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

  it('a cached response of an unchanged database is served without a connection to that database', async () => {
    await cacheRecord();
    const opened = record.openedConnections;
    for (let i = 0; i < 3; i++) {
      await record.advanceMinute();
      expect(await record.name()).to.equal('Euro');
    }
    expect(record.openedConnections).to.equal(opened);
  });

  it('a database is proved unchanged by the next poll after one that failed', async () => {
    await cacheRecord();
    const opened = record.openedConnections;
    await otherRecord.disconnect();
    const database = `alter database "${other.database}" allow_connections`;
    await withConnection(second.url, client => client.query(`${database} false`));
    await record.poll();
    expect(world.logs.join('')).to.include('write_monitor_failed');
    await withConnection(second.url, client => client.query(`${database} true`));
    const reopened = record.openedConnections;
    await record.advanceMinute();
    expect(await record.name()).to.equal('Euro');
    expect([reopened, record.openedConnections]).to.deep.equal([opened + 1, reopened + 1]); // to the other database
  });

  it('a database of the same name on another server proves nothing', async () => {
    const copy = `database "${tenant.database}"`;
    await withConnection(postgresUrl(), client => client.query(`create ${copy}`));
    try {
      await cacheRecord();
      await sql(tenant, `update currencies set name = 'only here'`);
      await record.advanceMinute();
      expect(await record.name()).to.equal('only here');
    } finally {
      await withConnection(postgresUrl(), client => client.query(`drop ${copy}`));
    }
  });

  it('a server that does not count changes proves nothing', async () => {
    const set = async (statement: string, to: string): Promise<void> => {
      await withConnection(second.url, async client => {
        await client.query(statement);
        await client.query('select pg_reload_conf()');
      });
      const show = () => withConnection(second.url, async client => (await client.query('show track_counts')).rows[0]);
      await eventually(async () => (await show()).track_counts === to);
    };
    await cacheRecord();
    await set('alter system set track_counts = off', 'off');
    await sql(tenant, `update currencies set name = 'not counted'`);
    await record.advanceMinute();
    await record.advanceMinute();
    expect(await record.name()).to.equal('not counted');
    await set('alter system reset track_counts', 'on');
  });

  it('a poll proves nothing about a response that was read during the poll', async () => {
    await cacheRecord();
    world.clock.monotonicOffsetMs += 120_000;
    await record.readUncached();
    await otherRecord.readUncached();
    const session = await connect(tenant.adminUrl);
    const { rows } = await session.query('select pg_backend_pid() as pid');
    const blocker = await connect(second.url);
    await blocker.query('begin; lock table pg_database in access exclusive mode');
    const polling = record.poll();
    await eventually(async () => (await readLockWaiters(blocker)).length > 0);
    const before = await record.name();
    await session.query(`update currencies set name = 'while it polls'`);
    expect(await record.name(), 'is cached').to.equal(before);
    await session.end();
    const ended = `select pg_stat_clear_snapshot(); select from pg_stat_get_activity(${rows[0].pid})`;
    await eventually(async () => ((await blocker.query(ended)) as unknown as pg.QueryResult[])[1]?.rowCount === 0);
    await blocker.query('rollback');
    await blocker.end();
    await polling;
    await otherRecord.readUncached();
    await record.disconnect();
    await record.advanceMinute();
    expect(await record.name()).to.equal('while it polls');
  });

  it('a response that was read before a crash of the server is not proved by a poll after it', async () => {
    await crash(await connect(tenant.adminUrl)); // from here on, the counters are equal after each crash
    await cacheRecord();
    const session = await connect(tenant.adminUrl);
    await session.query(`update currencies set name = 'before the crash'`);
    await crash(session);
    await otherRecord.readUncached();
    await record.advanceMinute();
    expect(await record.name()).to.equal('before the crash');
  });

  it('a database that was replaced by another of its name is not proved unchanged', async () => {
    const { database } = tenant;
    await record.disconnectAll();
    const copy = { ...tenant, database: 'copy', adminUrl: databaseUrl(second.url, 'copy') };
    await withConnection(second.url, client => client.query(`create database copy template "${database}"`));
    await sql(copy, `update currencies set name = 'of the copy'`);
    await crash(await connect(second.url)); // makes the counters of both databases equal
    await cacheRecord();
    await withConnection(second.url, async client => {
      await client.query(`alter database "${database}" rename to original`);
      await client.query(`alter database copy rename to "${database}"`);
    });
    await record.advanceMinute();
    expect(await record.name()).to.equal('of the copy');
  });
});
