import { expect } from 'chai';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { type RunningScript, runScript, type ScriptResult, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, sql, type TestTenant, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

interface Outcome {
  slug: string;
  state: string;
  from: string | null;
  to: string | null;
  error?: string;
}

describe('a migration run', function () {
  this.timeout(60_000);
  let world: World;
  let next: NextBuild;
  /** In the order of their slugs. */
  let tenants: TestTenant[];
  let service: RunningScript;
  let serviceUrl: string;

  before(async () => {
    [world, next] = await Promise.all([createWorld(), makeNextBuild()]);
    const more = Array.from({ length: 10 }, (_, index) => `tenant-${String(index + 1).padStart(2, '0')}`);
    tenants = [world.acme, world.globex];
    for (const slug of more) tenants.push(await world.provision(slug));
    service = startScript(next.file('src/main.ts'), [], world.environment);
    const port = await eventually(() => /"event":"listening","port":(\d+)/.exec(service.output.stdout)?.[1], 10_000);
    serviceUrl = `http://127.0.0.1:${port}`;
  });
  after(async () => {
    service.process.kill('SIGKILL');
    await service.ended;
    await world.close();
    const templates = `select datname as name from pg_database where datname like 'test\\_template\\_%'`;
    const { rows } = await withConnection(postgresUrl(), client => client.query<{ name: string }>(templates));
    expect(rows.filter(({ name }) => /_(read|new)$/.test(name))).to.deep.equal([]);
    await next.remove();
  });
  beforeEach(async () => {
    await query('delete from migration_runs');
    await Promise.all(tenants.map(takeBack));
  });

  const query = <Row extends object>(text: string, values: unknown[] = []) =>
    world.control.em.fork().execute<Row[]>(text, values);
  const tenant = (args: string[]) => runScript(next.file('scripts/tenant.ts'), args, world.environment);
  const migrate = (...args: string[]) => tenant(['migrate', '--json', ...args]);
  const linesOf = ({ stdout }: { stdout: string }): Outcome[] =>
    stdout
      .split('\n')
      .filter(line => line.endsWith('}'))
      .map(line => JSON.parse(line));
  const slugs = () => tenants.map(({ slug }) => slug);

  /** A tenant at the migrations of this build, whatever a test has made of it. */
  async function takeBack(each: TestTenant): Promise<void> {
    await sql(
      each,
      `drop table if exists labels;
       delete from migrations where name = '${next.head}';
       create index if not exists entities_status_id_index on entities (status_id)`,
    );
    await query('update tenants set schema_version = ?, schema_fingerprint = null where id = ?', [
      next.currentHead,
      each.id,
    ]);
  }

  async function failIn(...failing: TestTenant[]): Promise<void> {
    for (const each of failing) await sql(each, 'create table labels (in_the_way text)');
  }

  const versions = async (): Promise<Record<string, string | null>> =>
    Object.fromEntries(
      (await query<{ slug: string; version: string }>('select slug, schema_version as version from tenants')).map(
        ({ slug, version }) => [slug, version],
      ),
    );
  const runs = () => query<{ id: string; state: string }>('select id, state from migration_runs order by id');
  /** What the books say about each tenant of the newest run. */
  const states = async (): Promise<Record<string, string>> =>
    Object.fromEntries(
      (
        await query<{ slug: string; state: string }>(
          `select slug, o.state from migration_outcomes o join tenants t on t.id = tenant_id
            where run_id = (select max(id) from migration_runs) order by slug`,
        )
      ).map(({ slug, state }) => [slug, state]),
    );
  const all = (state: string, which = slugs()) => Object.fromEntries(which.map(slug => [slug, state]));

  async function expectAllMigratedOnce(): Promise<void> {
    expect(await versions()).to.deep.equal(all(next.head));
    for (const each of tenants) {
      expect(await sql(each, 'select title from labels'), each.slug).to.deep.equal([{ title: 'once' }]);
      const applied = await sql(each, 'select from migrations where name = $1', [next.head]);
      expect(applied, each.slug).to.have.length(1);
      expect(await sql(each, 'select id from entity_statuses order by id'), each.slug).to.have.length(3);
    }
    const prints = await query('select distinct schema_fingerprint from tenants');
    expect(prints).to.have.length(1);
  }

  async function at(url: string, each: TestTenant): Promise<Client> {
    return (await world.login(each)).at(url);
  }

  describe('of which one tenant fails', () => {
    it('stops after its canaries, or when enough have failed, and the next run does the rest', async () => {
      await failIn(tenants[1] as TestTenant);
      const canary = await migrate('--all', '--canary', '2');
      expect(canary.code).to.equal(1);
      expect(linesOf(canary)).to.have.length(2);
      expect(await states()).to.deep.equal({ ...all('skipped'), acme: 'migrated', globex: 'failed' });
      expect((await runs()).map(({ state }) => state)).to.deep.equal(['halted']);

      await failIn(tenants[2] as TestTenant);
      const limited = await tenant(['migrate', '--all', '--max-failures', '2', '--concurrency', '1']);
      expect([limited.code, limited.stdout]).to.satisfy(
        ([code, text]: [number, string]) => code === 1 && /^Halted: 0 migrated, 2 failed, 9 not started\.$/m.test(text),
      );
      expect(await states()).to.include({ acme: 'current', globex: 'failed', 'tenant-01': 'failed' });
      await sql(tenants[1] as TestTenant, 'drop table labels');
      await sql(tenants[2] as TestTenant, 'drop table labels');
      expect((await migrate('--all', '--canary', '1')).code).to.equal(0);
      await expectAllMigratedOnce();
    });

    it('brings all others to head under load, without an error, and tells which and why', async () => {
      const [broken, ...others] = tenants as [TestTenant, ...TestTenant[]];
      // Two are at head when the load begins; the rest are behind.
      const [first, second] = others as [TestTenant, TestTenant];
      expect((await migrate(first.slug, second.slug)).code).to.equal(0);
      // The build before serves tenants at its own version, so logins are had from it before.
      await takeBack(first);
      const logins = new Map<string, Client>();
      for (const each of tenants) {
        if (each !== second) logins.set(each.slug, await at(serviceUrl, each));
      }
      await migrate(first.slug);
      await failIn(broken);

      let running = true;
      const seen = new Map<string, string[]>();
      const load = [...logins].map(async ([slug, client]) => {
        const answers: string[] = [];
        seen.set(slug, answers);
        while (running) {
          const { status, body } = await client.get(path);
          answers.push(status === 200 ? '200' : `${status} ${body.code}`);
        }
      });
      const { code, stdout, stderr } = await migrate('--all');
      await eventually(() => [...seen].every(([slug, answers]) => slug === broken.slug || answers.at(-1) === '200'));
      running = false;
      await Promise.all(load);

      expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
      const outcomes = linesOf({ stdout });
      const failed = outcomes.filter(({ state }) => state === 'failed');
      expect(failed.map(({ slug }) => slug)).to.deep.equal([broken.slug]);
      expect(failed[0]?.error).to.match(new RegExp(`^${next.head}: .*labels`));
      expect(await versions()).to.deep.equal({ ...all(next.head), [broken.slug]: next.currentHead });
      for (const [slug, answers] of seen) {
        const kinds = [...new Set(answers)];
        const expected = slug === broken.slug ? ['503 migration_pending'] : slug === first.slug ? ['200'] : undefined;
        if (expected) expect(kinds, slug).to.deep.equal(expected);
        else expect(kinds.slice(-2), slug).to.deep.equal(['503 migration_pending', '200']);
        // Once served, always served.
        expect(answers.lastIndexOf('503 migration_pending'), slug).to.satisfy(
          (last: number) => slug === broken.slug || last < answers.indexOf('200'),
        );
      }

      const text = await tenant(['status']);
      expect(text.stdout)
        .to.match(/failed/)
        .and.to.include(broken.slug)
        .and.to.include('labels');
      const status = JSON.parse((await tenant(['status', '--json'])).stdout);
      expect(status.lastRun).to.deep.include({ state: 'failed', head: next.head });
      expect(status.lastRun.failures).to.have.length(1);
      expect(status.fleet).to.deep.equal([
        { schemaVersion: next.head, status: 'active', tenants: 11 },
        { schemaVersion: next.currentHead, status: 'active', tenants: 1 },
      ]);

      await sql(broken, 'drop table labels');
      // A run that did not come to it does not make it forgotten.
      expect((await migrate(first.slug)).code).to.equal(0);
      expect(JSON.parse((await tenant(['status', '--json'])).stdout).failing).to.have.length(1);
      const retried = await migrate('--retry-failed');
      expect(linesOf(retried).map(({ slug, state }) => [slug, state])).to.deep.equal([[broken.slug, 'migrated']]);
      expect(await states()).to.deep.equal({ [broken.slug]: 'migrated' });
      await expectAllMigratedOnce();
      expect((await logins.get(broken.slug)?.get(path))?.status).to.equal(200);
    });
  });

  it('that is only planned prints the SQL for each version, and touches nothing', async () => {
    await query('update tenants set schema_version = ? where slug = ?', ['0001-foundation', 'acme']);
    await closeDatabases(async () => {
      const document = JSON.parse((await migrate('--all', '--dry-run')).stdout);
      expect(document.head).to.equal(next.head);
      const [old, recent] = document.plans;
      expect([old.version, old.tenants]).to.deep.equal(['0001-foundation', ['acme']]);
      expect(old.migrations.map(({ name }: { name: string }) => name).at(-1)).to.equal(next.head);
      expect(old.migrations.length).to.be.greaterThan(2);
      expect([recent.version, recent.tenants]).to.deep.equal([next.currentHead, slugs().slice(1)]);
      expect(recent.migrations[0].sql[0]).to.match(/^create table labels/);
      const text = await tenant(['migrate', 'globex', '--dry-run']);
      expect(text.stdout).to.include('create table labels').and.not.include('acme');
    });
    expect(await runs()).to.deep.equal([]);
  });

  it('shares the work with another one that is started at the same time', async () => {
    const both = await Promise.all([migrate('--all'), migrate('--all')]);
    expect(both.map(({ code, stderr }) => [code, stderr])).to.deep.equal([
      [0, ''],
      [0, ''],
    ]);
    const done = both.flatMap(linesOf);
    expect(done.map(({ slug }) => slug).sort()).to.deep.equal(slugs());
    await expectAllMigratedOnce();
  });

  for (const killedAfter of [0, 3, 9]) {
    it(`killed after ${killedAfter} tenants is completed by the next one, and nothing runs twice`, async () => {
      const killed = startScript(
        next.file('scripts/tenant.ts'),
        ['migrate', '--all', '--json', '--concurrency', '2'],
        world.environment,
      );
      // At the moment of the first one, it is in the middle of it.
      await eventually(async () =>
        killedAfter === 0
          ? (await query(`select from migration_outcomes where state = 'running'`)).length > 0
          : linesOf(killed.output).length >= killedAfter,
      );
      killed.process.kill('SIGKILL');
      const before = linesOf(await killed.ended).map(({ slug }) => slug);
      const again = await migrate('--all');
      expect([again.code, again.stderr]).to.deep.equal([0, '']);
      const after = linesOf(again).map(({ slug }) => slug);
      expect(after.filter(slug => before.includes(slug))).to.deep.equal([]);
      expect((await runs()).map(({ state }) => state)).to.deep.equal(['abandoned', 'succeeded']);
      const left = await query(`select from migration_outcomes where state in ('pending', 'running')`);
      expect(left).to.deep.equal([]);
      await expectAllMigratedOnce();
    });
  }

  it('fails a tenant whose schema is not the template’s, names what differs, and leaves it as it was', async () => {
    await sql(world.globex, 'drop index entities_status_id_index');
    const { code, stdout } = await migrate('globex', 'acme');
    expect(code).to.equal(1);
    const globex = linesOf({ stdout }).find(({ slug }) => slug === 'globex');
    expect(globex).to.include({ state: 'failed', from: next.currentHead, to: next.currentHead });
    expect(globex?.error).to.include('index entities_status_id_index is missing');
    expect(await sql(world.globex, `select to_regclass('labels') as found`)).to.deep.equal([{ found: null }]);
    expect((await tenant(['status'])).stdout).to.include('index entities_status_id_index is missing');
  });

  it('with nothing to do opens no tenant database', async () => {
    await migrate('--all');
    await closeDatabases(async () => {
      const { code, stdout } = await tenant(['migrate', '--all']);
      expect([code, stdout]).to.deep.equal([0, 'Nothing to do.\n']);
    });
    expect(await states()).to.deep.equal(all('current'));
  });

  it('is refused for a database that is newer than the build, or another tenant’s', async () => {
    await migrate('acme');
    const old = await runScript('scripts/tenant.ts', ['migrate', 'acme', '--json'], world.environment);
    expect(old.code).to.equal(1);
    expect(linesOf(old)[0]?.error).to.match(/labels, which this build does not know/);
    expect((await versions()).acme).to.equal(next.head);

    await query('update tenants set database_name = ? where slug = ?', ['elsewhere', 'globex']);
    await query('update tenants set database_name = ? where slug = ?', [world.globex.database, 'tenant-01']);
    try {
      const { stdout } = await migrate('tenant-01');
      expect(linesOf({ stdout })[0]?.error).to.equal('the database belongs to another tenant');
      expect(await sql(world.globex, `select to_regclass('labels') as found`)).to.deep.equal([{ found: null }]);
    } finally {
      const [, , first] = tenants as [TestTenant, TestTenant, TestTenant];
      await query('update tenants set database_name = ? where slug = ?', [first.database, 'tenant-01']);
      await query('update tenants set database_name = ? where slug = ?', [world.globex.database, 'globex']);
    }
  });

  it('can be undone for one tenant, which the build before serves then, and done again', async () => {
    const old = await world.login(world.acme);
    const recent = old.at(serviceUrl);
    const neighbour = await at(serviceUrl, world.globex);
    const answers = async (): Promise<(string | number)[]> =>
      (await Promise.all([old.get(path), recent.get(path)])).map(({ status, body }) => body.code ?? status);
    expect(await answers()).to.deep.equal([200, 'migration_pending']);
    await migrate('acme', 'globex');
    await eventually(async () => expect(await answers()).to.deep.equal(['migration_pending', 200]));

    expect((await tenant(['rollback', 'acme'])).code, 'without a yes').to.equal(2);
    const undone: ScriptResult = await tenant(['rollback', 'acme', '--yes', '--json']);
    expect(JSON.parse(undone.stdout)).to.deep.equal({ slug: 'acme', from: next.head, to: next.currentHead });
    await eventually(async () => expect(await answers()).to.deep.equal([200, 'migration_pending']));
    expect((await neighbour.get(path)).status).to.equal(200);
    expect((await runs()).at(-1)?.state).to.equal('succeeded');
    const [row] = await query(
      'select state, from_version, to_version, error from migration_outcomes where run_id = ?',
      [(await runs()).at(-1)?.id],
    );
    expect(row).to.deep.equal({
      state: 'migrated',
      from_version: next.head,
      to_version: next.currentHead,
      error: null,
    });
    expect(await sql(world.acme, `select to_regclass('labels') as found`)).to.deep.equal([{ found: null }]);

    expect((await migrate('acme')).code).to.equal(0);
    await eventually(async () => expect(await answers()).to.deep.equal(['migration_pending', 200]));

    await query('update tenants set schema_version = null where slug = ?', ['acme']);
    const unclear = await tenant(['rollback', 'acme', '--yes']);
    expect([unclear.code, unclear.stderr]).to.satisfy(
      ([code, text]: [number, string]) => code === 1 && /migrate it first/.test(text),
    );
  });

  /** Runs `work` while a connection to any tenant's database is refused. */
  async function closeDatabases(work: () => Promise<void>): Promise<void> {
    const allow = (allowed: boolean) =>
      withConnection(postgresUrl(), async client => {
        for (const { database } of tenants) {
          await client.query(`alter database "${database}" allow_connections ${allowed}`);
        }
      });
    await allow(false);
    try {
      await work();
    } finally {
      await allow(true);
    }
  }
});
