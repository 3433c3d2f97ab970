import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { Tenant } from '../../../src/control/control-entities.ts';
import { owners } from '../../../src/control/secret-box.ts';
import { lockSpaces } from '../../../src/lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { DatabaseStep } from '../../../src/operator/databases/protocol/database-protocol.ts';
import { closedStamp } from '../../../src/operator/databases/store/database-stamp.ts';
import { moveTenant } from '../../../src/operator/databases/verbs/move-tenant.ts';
import { migrateTenants } from '../../../src/operator/schema/migrate-tenants.ts';
import { addByHand, handMadeDifference, readAddedByHand } from '../../support/added-by-hand.ts';
import { attributesOf, startCollector } from '../../support/collector.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { runCommand } from '../../support/run-command.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { laterObject, useEach } from '../../support/use.ts';
import { sql } from '../../support/world.ts';
import { MovedWrites } from './moved-writes.ts';

const path = '/api/v1/EntityStatus';
const request = { keepSeconds: 3_600, maxPauseMs: 60_000 };

describe('move of a tenant', () => {
  const servers = useEach(() => TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' }));
  const world = laterObject(() => servers.world);

  /**
   * Moves a tenant by a run that fails at a step. A simulation and a drill let runs end at
   * every step.
   */
  const move = (to: string, failsAt: DatabaseStep) =>
    moveTenant(
      world.installation,
      'acme',
      { ...request, to },
      {
        onStep: (_, step) => {
          if (step === failsAt) throw new Error('the run fails here');
        },
      },
    ).catch((error: Error) => error.message);

  /** Returns the URL of the tenant's database with the login of the service. */
  async function loginUrl(): Promise<string> {
    const { roleName, rolePassword, guid } = await world.control.em
      .fork()
      .findOneOrFail(Tenant, { slug: 'acme' });
    const url = new URL(await servers.currentUrl());
    url.username = roleName;
    url.password = world.installation.secrets
      .open(rolePassword, owners.rolePassword(guid))
      .toString();
    return url.href;
  }

  async function connect(url: string): Promise<pg.Client> {
    const session = new pg.Client(url);
    session.on('error', () => {});
    await session.connect();
    return session;
  }

  /** Returns the number of tenants on each server. */
  async function tenantsOf(): Promise<Record<string, number>> {
    const listed: { name: string; tenants: number }[] = JSON.parse(
      await servers.runWell(['server', 'list', '--json']),
    );
    return Object.fromEntries(listed.map(({ name, tenants }) => [name, tenants]));
  }

  it('a move that fails leaves the tenant in its database, and nothing of the new one', async () => {
    const writes = await MovedWrites.start(servers);
    const { result, titles } = await writes.during(() => move('second', 'exchange'));
    expect(result).to.equal('the run fails here');
    await writes.expectAll(titles);
    expect(await servers.states()).to.deep.equal(['default current']);
    expect(await servers.namesOn('second')).to.deep.equal([]);
    const { stdout } = await servers.run(['doctor', '--json']);
    const findings = JSON.parse(stdout).findings.filter(
      ({ tenant }: { tenant: string }) => tenant === 'acme',
    );
    expect(findings).to.deep.equal([]);
  });

  it('a tenant is moved under load: no request fails, no write is lost or made twice', async () => {
    const writes = await MovedWrites.start(servers);
    const [before] = await servers.databases();
    const url = await loginUrl();
    const sleeper = await connect(url);

    const { result: moved, titles } = await writes.during(() =>
      servers.move('acme', '--to', 'second'),
    );
    expect(moved).to.include({
      slug: 'acme',
      from: 'default',
      to: 'second',
      oldDatabase: before?.database,
    });
    expect(moved.pauseMs).to.be.above(0);
    expect(titles).to.have.length.above(2);
    await writes.expectAll(titles);
    expect(await servers.serverOf()).to.equal('second');
    expect(await servers.namesOn('second')).to.deep.equal([moved.newDatabase]);

    // The old side refuses the connection that slept, every new one, and the service even if
    // the login is allowed.
    await sleeper.query('select 1').then(
      () => expect.fail('the session still exists'),
      () => {},
    );
    const refused = await withConnection(url, async () => undefined).catch(error => error.code);
    expect(refused).to.equal('28000');
    const [{ guid } = { guid: '' }] = await sql<{ guid: string }>(
      world.acme,
      'select guid from tenant_identity',
    );
    expect(guid).not.to.equal(world.acme.guid);
  });

  it('move settle drops the old database of a moved tenant', async () => {
    await servers.move('acme', '--to', 'second');

    await servers.runWell(['move', 'settle', 'acme', '--yes']);

    expect(await servers.states()).to.deep.equal(['second current']);
    expect(await servers.namesOn('default', world.acme.database)).to.deep.equal([]);
    expect((await servers.run(['move', 'acme', '--back'])).stderr).to.include(
      'has no move that can be reversed',
    );
  });

  it('a move, move settle and server drain are refused while others have made tables in schemas of their own, and name them, until --leave-schemas', async () => {
    // given
    const writes = await MovedWrites.start(servers);
    const { titles } = await writes.during(() => servers.move('acme', '--to', 'second'));
    await servers.runWell(['move', 'settle', 'acme', '--yes']);
    const query = async (text: string) =>
      withConnection(await servers.currentUrl(), client => client.query(text));
    await query('create schema reporting; create table reporting.sales (id integer)');
    const before = await servers.databases();

    /** Expects that these commands fail, name the table, and change nothing. */
    const expectRefused = async (reason: string, ...commands: string[][]): Promise<void> => {
      for (const command of commands) {
        const { code, stdout, stderr } = await servers.run(command);
        expect([code, stdout + stderr], command.join(' ')).to.satisfy(
          ([exit, text]: [number, string]) =>
            exit === 1 && text.includes('schema reporting (sales)'),
        );
        expect(stdout + stderr, command.join(' ')).to.include(reason);
      }
    };

    // when, then
    const commands = [
      ['move', 'acme', '--to', 'default'],
      ['move', 'acme', '--to', 'default', '--dry-run'],
      ['server', 'drain', 'second'],
      ['server', 'drain', 'second', '--dry-run'],
    ];
    await expectRefused('rows that no move takes along', ...commands);
    expect(await servers.databases()).to.deep.equal(before);

    const plan = ['move', 'acme', '--to', 'default', '--leave-schemas', '--dry-run', '--json'];
    expect(JSON.parse(await servers.runWell(plan)).leaves).to.deep.equal([
      'schema reporting (sales)',
    ]);

    // and: the table stays in the old database, which is not dropped without a word
    await servers.move('acme', '--to', 'default', '--leave-schemas');
    expect(await servers.states()).to.deep.equal(['default current', 'second kept']);
    await query('create schema reporting; create table reporting.sales (id integer)');
    await expectRefused('rows that no move takes along', ['move', 'acme', '--back']);
    await query('drop schema reporting cascade');
    await expectRefused(
      'which an earlier one has left',
      ['move', 'acme', '--back'],
      ['move', 'acme', '--back', '--dry-run'],
    );
    await expectRefused(
      'it has rows that are nowhere else',
      ['move', 'settle', 'acme', '--yes'],
      ['move', 'settle', 'acme', '--dry-run'],
    );
    expect(await servers.states()).to.deep.equal(['default current', 'second kept']);

    // and
    await servers.runWell(['move', 'settle', 'acme', '--yes', '--leave-schemas']);
    expect(await servers.states()).to.deep.equal(['default current']);

    // and: a table of public, which a move takes along, is not missed in the old database when
    // it is dropped
    await query('create table notes (id integer)');
    await servers.move('acme', '--to', 'second');
    await query('drop table notes');
    await servers.runWell(['move', 'settle', 'acme', '--yes']);
    await writes.expectAll(titles);
  });

  it('a run that fails after the switch opens the new database, and the next run does so if the first one was killed', async () => {
    const writes = await MovedWrites.start(servers);
    const { result, titles } = await writes.during(() => move('second', 'open current'));
    expect(result).to.include({ slug: 'acme', to: 'second' });
    expect(result).to.have.property('pauseMs').within(1, 60_000);
    expect((await servers.databases()).map(({ error }) => error)).to.deep.equal([null, null]);
    await writes.expectAll(titles);

    // The traces of a run that is killed before it opens the database.
    await withConnection(await servers.currentUrl(), client =>
      client.query('update tenant_identity set guid = $1', [closedStamp(world.acme.guid)]),
    );
    await world.control.em.execute(
      `insert into tenant_fences (tenant_guid, id, closed)
       select guid, gen_random_uuid(), true from tenants where guid = ?`,
      [world.acme.guid],
    );
    const served = JSON.parse(await servers.runWell(['databases', 'prune', 'acme', '--json']));
    expect(served).to.have.length(1);
    expect(served[0]).to.include({ slug: 'acme', server: 'second', action: 'serve' });
    await writes.expectAll(titles);
  });

  it('tables and columns that were added by hand are moved with their data and types, and doctor names them', async () => {
    await servers.move('acme', '--to', 'second');
    await servers.move('acme', '--back');
    const acme = await world.login(world.acme);
    await acme.post('/api/v1/Currency', { Code: 'CHF', Name: 'Franc' });
    const query = async (text: string) =>
      withConnection(await servers.currentUrl(), client => client.query(text));
    await query(addByHand);
    const was = await query(readAddedByHand);
    const [, kept] = await servers.databases();
    await servers.move('acme', '--back');
    expect((await query(readAddedByHand)).rows).to.deep.equal(was.rows);
    expect(await servers.namesOn('second', kept?.database), 'of the former move').to.deep.equal([]);
    expect((await servers.run(['doctor', '--json'])).stdout).to.match(handMadeDifference);
  });

  it('a move that may not read a table names the table, and says who can let it', async () => {
    await servers.move('acme', '--to', 'second');
    const query = async (text: string) =>
      withConnection(await servers.currentUrl(), client => client.query(text));
    await query('create table strangers (id integer)');

    const { code, stderr } = await servers.run([
      'move',
      'acme',
      '--to',
      'default',
      '--pause',
      '60',
    ]);

    expect(code).to.equal(1);
    expect(stderr).to.include('permission denied for table strangers');
    expect(stderr).to.include(
      'acme is served by second, as before. Let a superuser of the server give the login of its',
    );
  });

  it('an entry of the activity log that commits during the move, after entries with greater numbers, is moved', async () => {
    const acme = await world.login(world.acme);
    const late = await connect(await loginUrl());
    const insert = `insert into activities (activity_code, comment, recorded_by, recorded_from) values (1, $1, 1, '')`;

    await late.query(`begin; select set_config('app.actor', '{"userId": 1}', true)`);
    await late.query(insert, ['late']);
    expect(
      (await acme.post('/api/v1/Activity', { ActivityCode: 1, Comment: 'early' })).status,
    ).to.equal(201);

    let committed: Promise<unknown> | undefined;
    const onStep = (_: string, step: DatabaseStep) => {
      if (step === 'fill') committed = sleep(1_000).then(() => late.query('commit'));
    };

    await moveTenant(world.installation, 'acme', { ...request, to: 'second' }, { onStep });
    await committed;

    const found = await withConnection(await servers.currentUrl(), async client => {
      const { rows } = await client.query<{ comment: string }>(
        'select comment from activities order by id desc limit 2',
      );
      return rows.map(({ comment }) => comment);
    });
    expect(found).to.deep.equal(['early', 'late']);
  });

  it('a move is refused with the reason when the tenant cannot be moved', async () => {
    const refusal = async (...args: string[]) => (await servers.run(['move', ...args])).stderr;

    expect(await refusal('globex', '--to', 'nowhere')).to.include('There is no server nowhere');
    expect(await refusal('globex', '--to', 'default')).to.include('globex is on default already');
    expect(await refusal('nobody', '--to', 'second')).to.include('There is no tenant nobody');
    expect(await refusal('globex')).to.include('--to <server> or --back');

    await withConnection(world.installation.controlUrl, async client => {
      await client.query('select pg_advisory_lock($1, $2)', [lockSpaces.tenant, world.globex.id]);
      expect(await refusal('globex', '--to', 'second')).to.include(
        'Another command works on globex',
      );
    });

    const plan = JSON.parse(
      await servers.runWell(['move', 'globex', '--to', 'second', '--dry-run', '--json']),
    );
    expect(plan).to.include({ slug: 'globex', from: 'default', to: 'second' });
  });

  it('server drain moves nothing when the other servers do not have room for all', async () => {
    const before = await tenantsOf();
    expect(before).to.deep.equal({ default: 2, second: 0 });
    await servers.runWell(['server', 'set', 'second', '--capacity', '1']);
    for (const options of [[], ['--dry-run']]) {
      const { code, stderr } = await servers.run(['server', 'drain', 'default', ...options]);
      expect([code, stderr]).to.satisfy(
        ([exit, text]: [number, string]) => exit === 1 && /do not have room/.test(text),
      );
    }
    expect(await tenantsOf()).to.deep.equal(before);
  });

  it('server drain moves every tenant of a server, suspended ones too', async () => {
    await servers.runWell(['suspend', 'globex', '--yes']);
    await servers.runWell(['server', 'drain', 'default', '--pause', '60', '--json']);
    await servers.runWell(['resume', 'globex']);
    expect(await tenantsOf()).to.deep.equal({ default: 0, second: 2 });
    const globex = await world.login(world.globex);
    expect((await globex.get(path)).status).to.equal(200);
  });

  it('databases prune drops the old databases of moved tenants whose time has passed, and no others', async () => {
    await servers.runWell(['server', 'drain', 'default', '--pause', '60', '--json']);
    const prune = async (): Promise<string[]> =>
      JSON.parse(await servers.runWell(['databases', 'prune', '--json'])).map(
        ({ slug }: { slug: string }) => slug,
      );

    expect(await prune()).to.deep.equal([]);

    await withConnection(world.installation.controlUrl, client =>
      client.query(
        `update tenant_databases set keep_until = now() - interval '1 second'
          where state = 'kept' and tenant_id = (select id from tenants where slug = 'globex')`,
      ),
    );

    expect(await prune()).to.deep.equal(['globex']);
    expect(await prune()).to.deep.equal([]);

    const globex = await world.login(world.globex);
    expect((await globex.get(path)).status).to.equal(200);
    expect((await servers.run(['move', 'globex', '--back'])).stderr).to.include(
      'has no move that can be reversed',
    );
  });

  it('a move sends a span of the run, with one below it for each of its steps', async () => {
    const collector = await startCollector();

    try {
      const settings = { ...world.environment, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
      const args = ['move', 'acme', '--to', 'second', '--pause', '60', '--json'];
      const { stdout, stderr } = await runCommand('scripts/tenant.ts', args, settings);
      expect(stderr).to.equal('');

      const lines: { step?: string }[] = jsonLines(stdout);
      const spans = collector.spans();
      const root = spans.find(({ name }) => name === 'move');
      const steps = spans.filter(({ parentSpanId }) => parentSpanId === root?.spanId);

      expect(spans).to.have.members([root, ...steps]);
      expect(steps.map(({ name }) => name)).to.deep.equal(lines.flatMap(({ step }) => step ?? []));
      for (const step of steps) {
        expect(attributesOf(step)).to.deep.equal({ 'backoffice.tenant': 'acme' });
      }
    } finally {
      collector.server.close();
    }
  });

  it('a tenant that is moved while a migration run works on others is migrated on its new server', async () => {
    await servers.move('globex', '--to', 'second');
    await withConnection(world.installation.controlUrl, async client => {
      const outdate = `update tenants set schema_fingerprint = 'old'`;
      await client.query(outdate);
      await client.query('select pg_advisory_lock($1, $2)', [lockSpaces.tenant, world.acme.id]);

      const begun = Promise.withResolvers<void>();
      const running = migrateTenants(
        world.installation,
        { canary: 1 },
        { onStart: () => begun.resolve() },
      );
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
