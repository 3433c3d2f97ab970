import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { Tenant } from '../../../src/control/fleet-entities.ts';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import type { DatabaseStep } from '../../../src/operator/databases/database-protocol.ts';
import { closedStamp } from '../../../src/operator/databases/database-stamp.ts';
import type { ListedDatabase } from '../../../src/operator/databases/list-databases.ts';
import { moveTenant } from '../../../src/operator/databases/move-tenant.ts';
import { migrateTenants } from '../../../src/operator/migrations/migrate-tenants.ts';
import { lockSpaces } from '../../../src/postgres/advisory-locks.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { unlessLate } from '../../support/late-refusals.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, sql, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
const request = { keepSeconds: 3_600, maxPauseMs: 60_000 };

describe('move of a tenant', () => {
  let world: World;
  let folder: string;
  let second: EmbeddedPostgres;
  let secondUrl: string;
  let acme: Client;
  let globex: Client;
  let other: Client;
  let otherUrl: string;

  before(async () => {
    folder = await makeServerFolder('second');
    [world, second] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000' }),
      startEmbeddedPostgres(folder, { settings: ['fsync=off', 'max_connections=50'] }),
    ]);
    // The rights that a provider of PostgreSQL gives: moves run with them on one side, as superuser on the other.
    await withConnection(second.url, async client => {
      await client.query(`create role operator login createdb createrole password 'secret'`);
      await client.query('create database operator owner operator');
    });
    secondUrl = databaseUrl(second.url, 'operator', { user: 'operator', password: 'secret' });
    const added = await run(['server', 'add', 'second'], secondUrl);
    expect(added.code, added.stderr).to.equal(0);
    [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    ({ url: otherUrl } = await world.startAnotherServer());
    other = acme.at(otherUrl);
  });
  after(async () => {
    await world.close();
    await second.leave();
    await rm(folder, { recursive: true, force: true });
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);
  const tenant = () => world.control.em.fork().findOneOrFail(Tenant, { slug: 'acme' }, { populate: ['server'] });
  const urlOf = async (): Promise<string> => {
    const { server, databaseName } = await tenant();
    return databaseUrl(server.name === 'second' ? second.url : postgresUrl(), databaseName);
  };
  const databases = async (): Promise<ListedDatabase[]> =>
    JSON.parse((await run(['databases', 'acme', '--json'])).stdout);
  const states = async (): Promise<[string, string][]> =>
    (await databases()).map(({ server, state }): [string, string] => [server, state]).sort();
  /** Returns the databases and roles of tenants on the second server. */
  const onSecond = () =>
    withConnection(second.url, async client => {
      const { rows } = await client.query<{ name: string }>(
        `select name from (select datname as name from pg_database union select rolname from pg_roles) as names
          where name ~ '_tenant_[0-9]+$'`,
      );
      return rows.map(({ name }) => name);
    });
  const failAt = (step: DatabaseStep) => ({
    onStep: (_: string, taken: DatabaseStep) => {
      if (taken === step) throw new Error('the run fails here');
    },
  });

  /** Writes and reads as fast as the service allows until `work` has ended, in two processes. */
  async function underLoad<T>(work: () => Promise<T>): Promise<{ result: T; titles: string[]; statuses: number[] }> {
    const titles: string[] = [];
    const statuses: number[] = [];
    let isOver = false;
    const write = async (client: Client, name: string): Promise<void> => {
      for (let number = 0; !isOver; number++) {
        const Title = `${name} ${number}`;
        const created = await unlessLate(() => client.post(path, { Title }));
        if (created?.status === 201) titles.push(Title);
        const read = await unlessLate(() => client.get(path));
        for (const response of [created, read]) if (response) statuses.push(response.status);
      }
    };
    const id = Math.random().toString(36).slice(2, 8);
    const writers = [write(acme, `${id} a`), write(other, `${id} b`), write(globex, `${id} c`)];
    const result = await work().finally(() => (isOver = true));
    await Promise.all(writers);
    return { result, titles: titles.filter(title => !title.startsWith(`${id} c`)), statuses };
  }

  async function expectAll(titles: string[]): Promise<void> {
    for (const client of [acme, other]) {
      const { body } = await client.get(path, { 'Cache-Control': 'no-cache' });
      const found = body.map(({ Title }: { Title: string }) => Title);
      for (const title of titles) expect(found.filter((each: string) => each === title)).to.deep.equal([title]);
    }
    const audited = await withConnection(await urlOf(), async client => {
      const { rows } = await client.query<{ title: string }>(
        `select after ->> 'title' as title from audit_log where action = 'create' and after ->> 'title' = any ($1)`,
        [titles],
      );
      return rows.map(row => row.title);
    });
    expect(audited.sort()).to.deep.equal([...titles].sort());
  }

  it('a tenant is moved there and back under load: no request fails, no write is lost or made twice', async () => {
    const before = await tenant();
    const url = databaseUrl(postgresUrl(), before.databaseName, {
      user: before.roleName,
      password: world.installation.secrets.open(before.rolePassword, owners.rolePassword(before.guid)).toString(),
    });
    const sleeper = new pg.Client(url);
    sleeper.on('error', () => {});
    await sleeper.connect();

    const there = await underLoad(() => run(['move', 'acme', '--to', 'second', '--pause', '60', '--json']));
    expect(there.result.code, there.result.stderr).to.equal(0);
    const moved = JSON.parse(there.result.stdout.trim().split('\n').at(-1) ?? '');
    expect(moved).to.include({ slug: 'acme', from: 'default', to: 'second', oldDatabase: before.databaseName });
    expect(moved.pauseMs).to.be.above(0);
    expect(new Set(there.statuses)).to.deep.equal(new Set([200, 201]));
    expect(there.titles).to.have.length.above(5);
    await expectAll(there.titles);
    expect((await tenant()).server.name).to.equal('second');

    // The old side refuses the connection that slept, every new one, and the service even if the login is allowed.
    await sleeper.query('select 1').then(
      () => expect.fail('the session still exists'),
      () => {},
    );
    const refused = await withConnection(url, async () => undefined).catch(error => error.code);
    expect(refused).to.equal('28000');
    const [{ guid } = { guid: '' }] = await sql<{ guid: string }>(world.acme, 'select guid from tenant_identity');
    expect(guid).not.to.equal(world.acme.guid);

    const back = await underLoad(() => run(['move', 'acme', '--back', '--pause', '60', '--json']));
    expect(back.result.code, back.result.stderr).to.equal(0);
    expect(new Set(back.statuses)).to.deep.equal(new Set([200, 201]));
    await expectAll([...there.titles, ...back.titles]);
    expect((await tenant()).server.name).to.equal('default');
    // The databases of the first move are dropped.
    const databases = await withConnection(postgresUrl(), async client => {
      const { rows } = await client.query('select datname as name from pg_database where datname like $1', [
        `${before.databaseName.replace(/_\d+$/, '')}\\_%`,
      ]);
      return rows.map(({ name }) => name);
    });
    expect(databases).not.to.include(before.databaseName);
  });

  it('an entry of the activity log that commits during the move, after entries with greater numbers, is moved', async () => {
    const { roleName: user, rolePassword, guid, server } = await tenant();
    const to = server.name === 'second' ? 'default' : 'second';
    const password = world.installation.secrets.open(rolePassword, owners.rolePassword(guid)).toString();
    const url = new URL(await urlOf());
    [url.username, url.password] = [user, password];
    const late = new pg.Client(url.href);
    late.on('error', () => {});
    await late.connect();
    const insert = `insert into activities (activity_code, comment, recorded_by, recorded_from) values (1, $1, 1, '')`;
    await late.query(`begin; select set_config('app.actor', '{"userId": 1}', true)`);
    await late.query(insert, ['late']);
    expect((await acme.post('/api/v1/Activity', { ActivityCode: 1, Comment: 'early' })).status).to.equal(201);
    let committed: Promise<unknown> | undefined;
    const onStep = (_: string, step: DatabaseStep) => {
      if (step === 'fill') committed = sleep(1_000).then(() => late.query('commit'));
    };
    await moveTenant(world.installation, 'acme', { ...request, to }, { onStep });
    await committed;
    const found = await withConnection(await urlOf(), async client => {
      const { rows } = await client.query<{ comment: string }>(
        'select comment from activities order by id desc limit 2',
      );
      return rows.map(({ comment }) => comment);
    });
    expect(found).to.deep.equal(['early', 'late']);
    expect((await run(['move', 'acme', '--to', server.name, '--pause', '60', '--json'])).code).to.equal(0);
  });

  it('a move that fails leaves the tenant in its database, and the next run begins anew and leaves nothing of it', async () => {
    const steps = [
      'create',
      'fill',
      'copy ahead',
      'close current',
      'end sessions',
      'copy changes',
      'exchange',
    ] as const;
    const reserved = new Set<string>();
    expect((await run(['move', 'settle', 'acme', '--yes'])).code).to.equal(0);
    for (const step of steps) {
      const { result, statuses, titles } = await underLoad(() =>
        moveTenant(world.installation, 'acme', { ...request, to: 'second' }, failAt(step)).catch(
          error => error.message,
        ),
      );
      expect(result, step).to.equal('the run fails here');
      expect(new Set(statuses), step).to.deep.equal(new Set([200, 201]));
      await expectAll(titles);
      expect((await tenant()).server.name).to.equal('default');
      // What the run before has left is dropped: runs that fail again and again do not fill the server.
      expect(await states(), step).to.deep.equal([
        ['default', 'current'],
        ['second', 'reserved'],
      ]);
      const { database, why } = (await databases()).find(({ state }) => state === 'reserved') as ListedDatabase;
      expect(why).to.include('npx backoffice databases prune acme');
      expect(new Set(await onSecond())).to.deep.equal(new Set(step === 'create' ? [] : [database]));
      reserved.add(database);
    }
    expect(reserved.size).to.equal(steps.length);
    const { stdout } = await run(['doctor', '--json']);
    const findings = JSON.parse(stdout).findings.filter(({ tenant: slug }: { tenant: string }) => slug === 'acme');
    expect(findings.map(({ check, server }: Record<string, string>) => [check, server])).to.deep.equal([
      ['leftover_database', 'second'],
    ]);
    const { result, titles } = await underLoad(() =>
      moveTenant(world.installation, 'acme', { ...request, to: 'second' }),
    );
    expect(reserved).not.to.include(result.newDatabase);
    expect(new Set(await onSecond())).to.deep.equal(new Set([result.newDatabase]));
    await expectAll(titles);
    expect((await run(['move', 'settle', 'acme', '--yes'])).code).to.equal(0);
    expect(await states()).to.deep.equal([['second', 'current']]);
    expect((await run(['move', 'acme', '--back'])).stderr).to.include('has no move that can be reversed');
  });

  it('an aborted move leaves no database behind', async () => {
    const to = 'default';
    await moveTenant(world.installation, 'acme', { ...request, to }, failAt('copy changes')).catch(() => {});
    const left = (await databases()).find(({ state }) => state === 'reserved')?.database;
    const { code, stdout } = await run(['move', 'abort', 'acme', '--json']);
    expect(code).to.equal(0);
    expect(JSON.parse(stdout)).to.deep.equal([{ slug: 'acme', server: 'default', dropped: left }]);
    const found = await withConnection(postgresUrl(), client =>
      client.query('select from pg_database where datname = $1 union all select from pg_roles where rolname = $1', [
        left,
      ]),
    );
    expect(found.rowCount).to.equal(0);
    expect(await states()).to.deep.equal([['second', 'current']]);
    expect((await acme.post(path, { Title: 'after the abort' })).status).to.equal(201);
  });

  it('a run that fails when the tenant has its new database opens it, and a later one does if that run is killed', async () => {
    const to = (await tenant()).server.name === 'second' ? 'default' : 'second';
    const failing = failAt('open current');
    const { result, titles } = await underLoad(() =>
      moveTenant(world.installation, 'acme', { ...request, to }, failing),
    );
    expect(result).to.include({ slug: 'acme', to });
    expect(result.pauseMs).to.be.within(1, 60_000);
    expect((await databases()).map(({ error }) => error)).to.deep.equal([null, null]);
    await expectAll(titles);

    // What a run leaves that is killed before it opens the database.
    const { guid } = world.acme;
    await withConnection(await urlOf(), client =>
      client.query('update tenant_identity set guid = $1', [closedStamp(guid)]),
    );
    await world.control.em.execute(
      `insert into tenant_fences (tenant_guid, id, closed, to_server_id)
       select guid, gen_random_uuid(), true, server_id from tenants where guid = ?`,
      [guid],
    );
    const { code, stdout } = await run(['move', 'abort', 'acme']);
    expect([code, stdout]).to.deep.equal([0, `acme has no unfinished move, and is served by ${to}.\n`]);
    await expectAll(titles);
    expect((await run(['move', 'settle', 'acme', '--yes'])).code).to.equal(0);
  });

  it('a move is refused with the reason when the tenant cannot be moved', async () => {
    const refusal = async (...args: string[]) => (await run(['move', ...args])).stderr;
    expect(await refusal('globex', '--to', 'nowhere')).to.include('There is no server nowhere');
    expect(await refusal('globex', '--to', 'default')).to.include('globex is on default already');
    expect(await refusal('nobody', '--to', 'second')).to.include('There is no tenant nobody');
    expect(await refusal('globex')).to.include('--to <server> or --back');
    await withConnection(world.installation.controlUrl, async client => {
      await client.query('select pg_advisory_lock($1, $2)', [lockSpaces.tenant, world.globex.id]);
      expect(await refusal('globex', '--to', 'second')).to.include('Another command works on globex');
    });
    const plan = JSON.parse((await run(['move', 'globex', '--to', 'second', '--dry-run', '--json'])).stdout);
    expect(plan).to.include({ slug: 'globex', from: 'default', to: 'second' });
  });

  it('server drain moves every tenant of a server, suspended ones too', async () => {
    expect((await run(['suspend', 'globex'])).code).to.equal(0);
    expect((await run(['server', 'drain', 'default', '--pause', '60', '--json'])).code).to.equal(0);
    expect((await run(['resume', 'globex'])).code).to.equal(0);
    const { stdout } = await run(['server', 'list', '--json']);
    expect(JSON.parse(stdout).map(({ name, tenants }: Record<string, unknown>) => [name, tenants])).to.deep.equal([
      ['default', 0],
      ['second', 2],
    ]);
    expect((await globex.get(path)).status).to.equal(200);
  });

  it('move settle drops the old databases whose time has passed, and no others', async () => {
    const settle = async (): Promise<string[]> => {
      const { stdout, stderr, code } = await run(['move', 'settle', '--json']);
      expect(code, stderr).to.equal(0);
      return JSON.parse(stdout).map(({ slug }: { slug: string }) => slug);
    };
    expect(await settle()).to.deep.equal([]);
    await withConnection(world.installation.controlUrl, client =>
      client.query(
        `update tenant_databases set keep_until = now() - interval '1 second'
          where state = 'kept' and tenant_id = (select id from tenants where slug = 'globex')`,
      ),
    );
    expect(await settle()).to.deep.equal(['globex']);
    expect(await settle()).to.deep.equal([]);
    expect((await globex.get(path)).status).to.equal(200);
    expect((await run(['move', 'globex', '--back'])).stderr).to.include('has no move that can be reversed');
  });

  it('server rebalance plans moves from the fullest server, and moves nothing', async () => {
    const plan = async () => JSON.parse((await run(['server', 'rebalance', '--json'])).stdout);
    const planned = await plan();
    expect(planned.map(({ from, to }: Record<string, string>) => [from, to])).to.deep.equal([['second', 'default']]);
    expect(planned[0].slug).to.be.oneOf(['acme', 'globex']);
    const { stdout } = await run(['server', 'list', '--json']);
    expect(JSON.parse(stdout).map(({ tenants }: Record<string, unknown>) => tenants)).to.deep.equal([0, 2]);
  });

  it('a tenant that is moved while a migration run works on others is migrated on its new server', async () => {
    await moveTenant(world.installation, 'acme', { ...request, to: 'default' });
    await withConnection(world.installation.controlUrl, async client => {
      const outdate = `update tenants set schema_fingerprint = 'old'`;
      await client.query(outdate);
      await client.query('select pg_advisory_lock($1, $2)', [lockSpaces.tenant, world.acme.id]);
      const begun = Promise.withResolvers<void>();
      const running = migrateTenants(world.installation, { canary: 1 }, { onStart: () => begun.resolve() });
      await Promise.race([begun.promise, running]);
      await moveTenant(world.installation, 'globex', { ...request, to: 'default' });
      await client.query(outdate);
      await client.query('select pg_advisory_unlock($1, $2)', [lockSpaces.tenant, world.acme.id]);
      const { state, outcomes } = await running;
      expect(outcomes.map(({ slug, state, error }) => [slug, error ?? state])).to.deep.equal([
        ['acme', 'current'],
        ['globex', 'current'],
      ]);
      expect(state).to.equal('succeeded');
    });
  });
});
