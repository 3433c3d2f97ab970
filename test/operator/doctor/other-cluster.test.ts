import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

interface ReportedFinding {
  id: string;
  check: string;
  tenant: string | null;
  problem: string;
  remedy: string;
  repair: string | null;
  fixed: boolean;
}

describe('doctor of a database that has come from another cluster', () => {
  const server = use(() => createDedicatedServer(['max_prepared_transactions=5']));
  let acme: string;
  let globex: string;

  before(async () => {
    acme = (await server.provision('acme')).tenant.databaseName;
    globex = (await server.provision('globex')).tenant.databaseName;
  });
  afterEach(async () => expect(await doctor()).to.deep.equal([]));

  const doctor = async (...args: string[]): Promise<ReportedFinding[]> => {
    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json', ...args],
      server.environment,
    );
    return JSON.parse(stdout).findings;
  };
  const checksOf = (findings: ReportedFinding[]) =>
    findings.map(({ check, tenant }) => [check, tenant]);
  const addWaiting = (xid: string, database: string) =>
    server.sql(
      `insert into activities (activity_code, created_at, recorded_by, recorded_from, feed_xid)
       values (1, now() - interval '40 seconds', 0, '', ${xid})`,
      database,
    );

  it('doctor names rows from the future of a server and blames no transaction for them, and --fix begins a new era', async () => {
    const era = 'select feed_era as era from tenant_identity';
    const [former] = await server.sql<{ era: string }>(era, acme);
    await addWaiting(`'1000000000'`, acme);

    const found = await doctor();
    const webhooks = await runCommand(
      'scripts/tenant.ts',
      ['webhooks', 'acme'],
      server.environment,
    );
    const fixed = await doctor('--fix');

    expect(checksOf(found)).to.deep.equal([['rows_from_future', 'acme']]);
    expect(found[0]?.problem).to.include('rows from the future of this server');
    expect(webhooks.stderr).to.equal('');
    expect(fixed.map(each => each.fixed)).to.deep.equal([true]);
    const [present] = await server.sql<{ era: string }>(era, acme);
    expect(Number(present?.era)).to.be.above(Number(former?.era));
  });

  it('doctor names each sequence behind its rows, and --fix sets it, after which inserts go on', async () => {
    await server.sql(`select setval('entity_statuses_id_seq', 1, false)`, acme);
    await server.sql(
      `insert into entity_statuses (title) values ('first'); select setval('entity_statuses_id_seq', 1, false)`,
      globex,
    );
    const insert = () => server.sql(`insert into entity_statuses (title) values ('next')`, globex);
    const refused = await insert().catch(error => error.code);
    await server.sql(`select setval('entity_statuses_id_seq', 1, false)`, globex);

    const found = await doctor();
    const fixed = await doctor('--fix');

    expect(refused).to.equal('23505');
    expect(found.map(each => each.check)).to.include('sequence_behind');
    expect(found.find(({ tenant }) => tenant === 'globex')?.problem).to.match(
      /sequence public\.entity_statuses_id_seq is behind its rows, which have \d+/,
    );
    expect(fixed.every(each => each.fixed)).to.equal(true);
    await insert();
  });

  it('doctor names the enabled subscription that writes to a database, and --fix disables it', async () => {
    await server.sql(
      `create subscription "from elsewhere" connection 'host=127.0.0.1 port=1 dbname=none' publication p
         with (connect = false, slot_name = none)`,
      acme,
    );
    await server.sql('update pg_subscription set subenabled = true', acme);

    const found = await doctor();
    const fixed = await doctor('--fix', found[0]?.id ?? '');

    expect(checksOf(found)).to.deep.equal([['replicated_database', 'acme']]);
    expect(found[0]?.problem).to.include('subscription from elsewhere');
    expect(fixed[0]?.fixed).to.equal(true);
    await server.sql('drop subscription "from elsewhere"', acme);
  });

  it('doctor names a prepared transaction that holds back changes, and --fix ends it', async () => {
    const session = new pg.Client(databaseUrl(server.url, acme));
    await session.connect();
    await session.query('begin');
    await session.query(`insert into entity_statuses (title) values ('prepared')`);
    await session.query(`prepare transaction 'of a batch'`);
    await session.end();
    await addWaiting('default', acme);

    const found = await doctor();
    const fixed = await doctor('--fix', found[0]?.id ?? '');

    expect(checksOf(found)).to.deep.equal([['feed_held', 'acme']]);
    expect(found[0]?.problem).to.include('the prepared transaction of a batch of login');
    expect(fixed[0]?.fixed).to.equal(true);
    expect(await server.sql('select from pg_prepared_xacts', acme)).to.deep.equal([]);
  });

  it('doctor --fix ends a prepared transaction of the control database that holds back the changes of a tenant', async () => {
    const session = new pg.Client(server.environment.DATABASE_URL);
    await session.connect();
    await session.query('begin');
    await session.query('select pg_current_xact_id()');
    await session.query('create table prepared ()');
    await session.query(`prepare transaction 'of control'`);
    await session.end();
    await addWaiting('default', acme);

    const held = (await doctor()).filter(({ check }) => check === 'feed_held');
    const fixed = await doctor('--fix', held[0]?.id ?? '');

    expect(checksOf(held)).to.deep.equal([['feed_held', 'acme']]);
    expect(held[0]?.problem).to.include('the prepared transaction of control');
    expect(fixed.find(({ id }) => id === held[0]?.id)?.fixed).to.equal(true);
  });
});
