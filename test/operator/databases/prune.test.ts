import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { lockSpaces } from '../../../src/lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { closedStamp } from '../../../src/operator/databases/store/database-stamp.ts';
import type { Client } from '../../support/client.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';

describe('databases prune', () => {
  let world: World;
  let control: pg.Client;
  let acme: Client;

  beforeEach(async () => {
    world = await createWorld();
    control = new pg.Client(world.environment.DATABASE_URL);
    await control.connect();
    acme = await world.login(world.acme);
  });
  afterEach(async () => {
    await control.end();
    await world.close();
  });

  const run = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/backoffice.ts', args, world.environment);

  /**
   * The traces of a move that was killed behind the fence, with the process that outlives it.
   */
  async function leaveFence(slug: string): Promise<void> {
    await control.query(
      `insert into tenant_fences (tenant_guid, id, closed)
       select guid, gen_random_uuid(), true from tenants where slug = $1`,
      [slug],
    );
  }

  async function leaveReserved(slug: string): Promise<void> {
    await control.query(
      `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin)
       select id, server_id, 'unfinished_' || slug, 'unfinished_' || slug, 'reserved', 'template'
         from tenants where slug = $1`,
      [slug],
    );
  }

  async function statesOf(slug: string): Promise<string[]> {
    const { rows } = await control.query<{ state: string }>(
      'select d.state from tenant_databases d join tenants t on t.id = tenant_id where slug = $1 order by d.state',
      [slug],
    );
    return rows.map(({ state }) => state);
  }

  it('a tenant whose command has died behind the fence is served again after databases prune', async () => {
    await leaveFence('acme');
    const served = [
      {
        slug: 'acme',
        server: 'default',
        database: world.acme.database,
        state: 'current',
        action: 'serve',
        holds: [],
        onlyHere: [],
      },
    ];

    for (const slug of [[], ['acme']]) {
      expect(
        JSON.parse((await run('databases', 'prune', ...slug, '--dry-run', '--json')).stdout),
      ).to.deep.equal(served);
    }

    expect(
      JSON.parse((await run('databases', 'prune', 'globex', '--dry-run', '--json')).stdout),
    ).to.deep.equal([]);
    expect((await control.query('select from tenant_fences')).rowCount).to.equal(1);

    const { code, stdout, stderr } = await run('databases', 'prune', '--json');
    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout)).to.deep.equal(served);
    expect((await control.query('select from tenant_fences')).rowCount).to.equal(0);
    expect((await acme.get('/api/v1/EntityStatus')).status).to.equal(200);
  });

  it('a move that died after the tenant was switched to the other server lifts its fence when it is repeated', async () => {
    await leaveFence('acme');
    const { code, stderr } = await run('move', 'acme', '--to', 'default');
    expect(code).to.equal(1);
    expect(stderr).to.include('acme is on default already');
    expect((await control.query('select from tenant_fences')).rowCount).to.equal(0);
    expect((await acme.get('/api/v1/EntityStatus')).status).to.equal(200);
  });

  it('databases prune of all tenants skips one that another command works on, and is refused for that tenant alone', async () => {
    await leaveReserved('acme');
    await leaveReserved('globex');
    await control.query(
      `select pg_advisory_lock($1, (select id::int from tenants where slug = 'globex'))`,
      [lockSpaces.tenant],
    );

    const { code, stderr } = await run('databases', 'prune');
    expect(code, stderr).to.equal(0);
    expect(await statesOf('acme')).to.deep.equal(['current']);
    expect(await statesOf('globex')).to.deep.equal(['current', 'reserved']);

    const named = await run('databases', 'prune', 'globex');
    expect(named.code).to.equal(1);
    expect(named.stderr).to.include('Another command works on globex');

    await control.query('select pg_advisory_unlock_all()');
    expect((await run('databases', 'prune', 'globex')).code).to.equal(0);
    expect(await statesOf('globex')).to.deep.equal(['current']);
  });

  it('a database that is opened while it is being dropped is not dropped', async () => {
    const name = 'opened_meanwhile';
    const { rows } = await control.query<{ guid: string }>(
      `select guid from tenants where slug = 'acme'`,
    );
    const guid = rows[0]?.guid ?? '';

    await withConnection(postgresUrl(), server => server.query(`create database ${name}`));
    const opening = new pg.Client(databaseUrl(postgresUrl(), name));
    await opening.connect();
    await opening.query(`create table tenant_identity (guid uuid, epoch bigint);
                         create table migrations (id int, name text);
                         insert into tenant_identity values ('${closedStamp(guid)}', 1)`);

    await control.query(
      `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin)
       select id, server_id, $1, $1, 'condemned', 'template' from tenants where slug = 'acme'`,
      [name],
    );

    await opening.query(`begin; update tenant_identity set guid = '${guid}'`);
    const pruning = run('databases', 'prune', 'acme');
    // The query runs outside the transaction, which would see the sessions of its first query.
    const blocked = `select from pg_stat_activity a, pg_stat_activity o
                      where o.pid = any (pg_blocking_pids(a.pid)) and o.datname = $1`;
    await eventually(async () => (await control.query(blocked, [name])).rowCount === 1);
    await opening.query('commit');

    const { code, stderr } = await pruning;
    expect(code).to.equal(1);
    expect(stderr).to.include(`Database ${name} on server default was not dropped`);
    expect((await opening.query('select guid from tenant_identity')).rows).to.deep.equal([
      { guid },
    ]);

    await opening.end();
    await control.query('delete from tenant_databases where database_name = $1', [name]);
    await withConnection(postgresUrl(), server => server.query(`drop database ${name}`));
  });

  it('completion offers the databases of a tenant that can be dropped, and no others', async () => {
    await leaveReserved('acme');
    await control.query(
      `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin)
       select id, server_id, 'restored_' || slug, 'restored_' || slug, 'filled', 'archive of a test' from tenants`,
    );

    const complete = async (...words: string[]): Promise<string[]> =>
      (await run('__complete', ...words)).stdout
        .split('\n')
        .map(line => line.split('\t')[0] ?? '')
        .filter(Boolean);

    expect(await complete('databases', '')).to.include.members(['prune', 'drop', 'acme', 'globex']);
    expect(await complete('databases', 'drop', '')).to.deep.equal(['acme', 'globex']);
    expect(await complete('databases', 'drop', 'acme', '')).to.deep.equal(['restored_acme']);
    expect(await complete('restore', 'swap', 'globex', '--database', '')).to.deep.equal([
      'restored_globex',
    ]);
  });
});
