import { rm, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { runScript, type ScriptResult, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { unlessLate } from '../../support/late-refusals.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { createServiceProcesses } from '../../support/service-processes.ts';
import { postgresUrl, server } from '../../support/test-server.ts';
import { controlSql, createWorld, sql, type TestTenant, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
/** Between two requests of a client: eleven clients without a pause would take the CPU time of the migration. */
const pauseMs = 20;

interface Outcome {
  slug: string;
  state: string;
  from: string | null;
  to: string | null;
  error?: string;
}

describe('migration runs', () => {
  let world: World;
  let next: NextBuild;
  /** All tenants, sorted by slug. */
  let tenants: TestTenant[];
  const processes = createServiceProcesses();
  let serviceUrl: string;

  before(async () => {
    [world, next] = await Promise.all([createWorld(), makeNextBuild()]);
    const slugs = Array.from({ length: 4 }, (_, index) => `tenant-${String(index + 1).padStart(2, '0')}`);
    tenants = [world.acme, world.globex];
    for (const slug of slugs) tenants.push(await world.provision(slug));
    // Requests wait for the migration, and for a busy machine, rather than fail.
    const environment = { ...world.environment, ACQUIRE_TIMEOUT_MS: '20000' };
    serviceUrl = (await processes.start(environment, next.file('src/main.ts'))).url;
  });
  after(async () => {
    await processes.killAll();
    await world.close();
    const { migrationsDigest } = await import(next.file('src/operator/schema/template.ts'));
    const template = `${server.prefix}_template_${await migrationsDigest()}`;
    const names = 'select datname as name from pg_database where starts_with(datname, $1)';
    const { rows } = await withConnection(postgresUrl(), client => client.query(names, [template]));
    expect(rows).to.deep.equal([{ name: template }]);
    await next.remove();
  });
  beforeEach(async () => {
    await query('delete from migration_runs');
    await Promise.all(tenants.map(resetTenant));
  });

  const query = <Row extends object>(text: string, values: unknown[] = []) => controlSql<Row>(world, text, values);
  const runTenant = (args: string[]) => runCommand(next.file('scripts/tenant.ts'), args, world.environment);
  /** The process of the current build runs on, and stops serving the tenants that the next build migrates. */
  const migrate = (...args: string[]) => runTenant(['migrate', '--json', '--despite-running', ...args]);
  const linesOf = ({ stdout }: { stdout: string }): Outcome[] =>
    stdout
      .split('\n')
      .filter(line => line.endsWith('}'))
      .map(line => JSON.parse(line));
  const slugs = () => tenants.map(({ slug }) => slug);

  /** Puts a tenant back to the migrations of this build, after the changes of a test. */
  async function resetTenant(tenant: TestTenant): Promise<void> {
    await sql(
      tenant,
      `drop table if exists labels;
       delete from migrations where name = '${next.head}';
       create index if not exists entities_status_id_id_index on entities (status_id, id)`,
    );
    await query('update tenants set schema_version = ?, schema_fingerprint = null where id = ?', [
      next.currentHead,
      tenant.id,
    ]);
  }

  /** Makes the next migration fail for these tenants: its table exists already. */
  async function blockMigration(...blocked: TestTenant[]): Promise<void> {
    for (const tenant of blocked) await sql(tenant, 'create table labels (in_the_way text)');
  }

  const versions = async (): Promise<Record<string, string | null>> =>
    Object.fromEntries(
      (await query<{ slug: string; version: string }>('select slug, schema_version as version from tenants')).map(
        ({ slug, version }) => [slug, version],
      ),
    );
  const runs = () => query<{ id: string; state: string }>('select id, state from migration_runs order by id');
  /** Returns the state of each tenant in the newest recorded run. */
  const states = async (): Promise<Record<string, string>> =>
    Object.fromEntries(
      (
        await query<{ slug: string; state: string }>(
          `select slug, o.state from migration_outcomes o join tenants t on t.id = tenant_id
            where run_id = (select max(id) from migration_runs) order by slug`,
        )
      ).map(({ slug, state }) => [slug, state]),
    );
  const all = (value: string) => Object.fromEntries(slugs().map(slug => [slug, value]));

  async function expectAllMigratedOnce(): Promise<void> {
    expect(await versions()).to.deep.equal(all(next.head));
    for (const tenant of tenants) {
      const [found] = await sql(
        tenant,
        `select (select json_agg(title) from labels) as titles,
                (select count(*)::int from migrations where name = $1) as applied,
                (select count(*)::int from entity_statuses) as statuses`,
        [next.head],
      );
      expect(found, tenant.slug).to.deep.equal({ titles: ['once'], applied: 1, statuses: 3 });
    }
    const fingerprints = await query('select distinct schema_fingerprint from tenants');
    expect(fingerprints).to.have.length(1);
  }

  /** Logs in to a tenant, and returns a client for the server with this URL. */
  async function loginAt(url: string, tenant: TestTenant): Promise<Client> {
    return (await world.login(tenant)).at(url);
  }

  describe('migration runs with a failed tenant', () => {
    it('a run halts after failed canaries or after --max-failures, and the next run migrates the rest', async () => {
      await blockMigration(tenants[1] as TestTenant);
      const canary = await migrate('--all', '--canary', '2');
      expect(canary.code).to.equal(1);
      expect(linesOf(canary)).to.have.length(2);
      expect(await states()).to.deep.equal({ ...all('skipped'), acme: 'migrated', globex: 'failed' });
      expect((await runs()).map(({ state }) => state)).to.deep.equal(['halted']);
      const again = JSON.parse((await migrate('--retry-failed', '--dry-run')).stdout);
      expect(again.plans.flatMap((plan: { tenants: string[] }) => plan.tenants)).to.deep.equal(['globex']);

      await blockMigration(tenants[2] as TestTenant);
      const limited = await runTenant([
        'migrate',
        '--all',
        '--despite-running',
        '--max-failures',
        '2',
        '--concurrency',
        '1',
      ]);
      expect([limited.code, limited.stdout]).to.satisfy(
        ([code, text]: [number, string]) => code === 1 && /^Halted: 0 migrated, 2 failed, 3 not started\.$/m.test(text),
      );
      expect(await states()).to.include({ acme: 'current', globex: 'failed', 'tenant-01': 'failed' });
      await sql(tenants[1] as TestTenant, 'drop table labels');
      await sql(tenants[2] as TestTenant, 'drop table labels');
      expect((await migrate('--all', '--canary', '1')).code).to.equal(0);
      await expectAllMigratedOnce();
    });

    it('a run migrates all other tenants under load without errors, and reports the failed one', async () => {
      const [broken, ...others] = tenants as [TestTenant, ...TestTenant[]];
      // Two tenants are at head when the load begins; the others are behind.
      const [first, second] = others as [TestTenant, TestTenant];
      expect((await migrate(first.slug, second.slug)).code).to.equal(0);
      // The current build logs in only tenants of its own version, so the logins precede the migration.
      await resetTenant(first);
      const logins = new Map<string, Client>();
      for (const tenant of tenants) {
        if (tenant !== second) logins.set(tenant.slug, await loginAt(serviceUrl, tenant));
      }
      await migrate(first.slug);
      await blockMigration(broken);

      let running = true;
      const seen = new Map<string, string[]>();
      const load = [...logins].map(async ([slug, client]) => {
        const results: string[] = [];
        seen.set(slug, results);
        while (running) {
          const response = await unlessLate(() => client.get(path));
          if (response) results.push(response.status === 200 ? '200' : `${response.status} ${response.body.code}`);
          await delay(pauseMs);
        }
      });
      await eventually(() => seen.size === logins.size && [...seen.values()].every(results => results.length > 0));
      const { code, stdout, stderr } = await migrate('--all');
      await eventually(() => [...seen].every(([slug, results]) => slug === broken.slug || results.at(-1) === '200'));
      running = false;
      await Promise.all(load);

      expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
      const outcomes = linesOf({ stdout });
      const failed = outcomes.filter(({ state }) => state === 'failed');
      expect(failed.map(({ slug }) => slug)).to.deep.equal([broken.slug]);
      expect(failed[0]?.error).to.match(new RegExp(`^${next.head}: .*labels`));
      expect(await versions()).to.deep.equal({ ...all(next.head), [broken.slug]: next.currentHead });
      for (const [slug, results] of seen) {
        const kinds = [...new Set(results)];
        const expected = slug === broken.slug ? ['503 migration_pending'] : slug === first.slug ? ['200'] : undefined;
        if (expected) expect(kinds, slug).to.deep.equal(expected);
        else expect(kinds.slice(-2), slug).to.deep.equal(['503 migration_pending', '200']);
        // After its first success, a tenant never fails again.
        expect(results.lastIndexOf('503 migration_pending'), slug).to.satisfy(
          (last: number) => slug === broken.slug || last < results.indexOf('200'),
        );
      }

      const text = await runTenant(['status']);
      expect(text.stdout)
        .to.match(/failed/)
        .and.to.include(broken.slug)
        .and.to.include('labels');
      const status = JSON.parse((await runTenant(['status', '--json'])).stdout);
      expect(status.lastRun).to.deep.include({ state: 'failed', head: next.head });
      expect(status.lastRun.failures).to.have.length(1);
      expect(status.fleet).to.deep.equal([
        { schemaVersion: next.head, status: 'active', tenants: 5 },
        { schemaVersion: next.currentHead, status: 'active', tenants: 1 },
      ]);

      await sql(broken, 'drop table labels');
      // A later run without the failed tenant does not clear its failure.
      expect((await migrate(first.slug)).code).to.equal(0);
      expect(JSON.parse((await runTenant(['status', '--json'])).stdout).failing).to.have.length(1);
      const retried = await migrate('--retry-failed');
      expect(linesOf(retried).map(({ slug, state }) => [slug, state])).to.deep.equal([[broken.slug, 'migrated']]);
      expect(await states()).to.deep.equal({ [broken.slug]: 'migrated' });
      await expectAllMigratedOnce();
      expect((await logins.get(broken.slug)?.get(path))?.status).to.equal(200);
    });
  });

  it('migrate --dry-run prints the SQL for each version and opens no tenant database', async () => {
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
      const text = await runTenant(['migrate', 'globex', '--dry-run']);
      expect(text.stdout).to.include('create table labels').and.not.include('acme');
    });
    expect(await runs()).to.deep.equal([]);
  });

  it('a run of a tenant that does not exist is refused, and so is its plan', async () => {
    for (const options of [[], ['--dry-run']]) {
      const { code, stderr } = await runTenant(['migrate', 'acme', 'a{b', ...options]);
      expect([code, stderr]).to.deep.equal([1, 'There is no tenant a{b. List the tenants: npx backoffice list\n']);
    }
  });

  it('two concurrent migration runs share the tenants, and each tenant is migrated once', async () => {
    const args = ['migrate', '--json', '--despite-running', '--all'];
    const other = runScript(next.file('scripts/tenant.ts'), args, world.environment);
    const both = await Promise.all([other, runTenant(args)]);
    expect(both.map(({ code, stderr }) => [code, stderr])).to.deep.equal([
      [0, ''],
      [0, ''],
    ]);
    const done = both.flatMap(linesOf);
    expect(done.map(({ slug }) => slug).sort()).to.deep.equal(slugs());
    await expectAllMigratedOnce();
  });

  it('runs killed at their first tenant and after one tenant are completed by the next run, and nothing runs twice', async () => {
    const before: string[] = [];
    for (const killedAfter of [0, 1]) {
      const killed = startScript(
        next.file('scripts/tenant.ts'),
        ['migrate', '--all', '--despite-running', '--json', '--concurrency', '2'],
        world.environment,
      );
      await eventually(async () =>
        killedAfter === 0
          ? (await query(`select from migration_outcomes where state = 'running'`)).length > 0
          : linesOf(killed.output).length >= killedAfter,
      );
      killed.process.kill('SIGKILL');
      before.push(...linesOf(await killed.ended).map(({ slug }) => slug));
    }
    const again = await migrate('--all');
    expect([again.code, again.stderr]).to.deep.equal([0, '']);
    const after = linesOf(again).map(({ slug }) => slug);
    expect(after.filter(slug => before.includes(slug))).to.deep.equal([]);
    expect((await runs()).map(({ state }) => state)).to.deep.equal(['abandoned', 'abandoned', 'succeeded']);
    const unfinished = await query(`select from migration_outcomes where state in ('pending', 'running')`);
    expect(unfinished).to.deep.equal([]);
    await expectAllMigratedOnce();
  });

  it('a tenant whose schema differs from the template fails with the differences and is not changed', async () => {
    await sql(world.globex, 'drop index entities_status_id_id_index');
    const { code, stdout } = await migrate('globex', 'acme');
    expect(code).to.equal(1);
    const globex = linesOf({ stdout }).find(({ slug }) => slug === 'globex');
    expect(globex).to.include({ state: 'failed', from: next.currentHead, to: next.currentHead });
    expect(globex?.error).to.include('index entities_status_id_id_index is missing');
    expect(await sql(world.globex, `select to_regclass('labels') as found`)).to.deep.equal([{ found: null }]);
    expect((await runTenant(['status'])).stdout).to.include('index entities_status_id_id_index is missing');
  });

  it('a migration run with nothing to do opens no tenant database', async () => {
    await migrate('--all');
    await closeDatabases(async () => {
      const { code, stdout } = await runTenant(['migrate', '--all']);
      expect([code, stdout]).to.deep.equal([0, 'Nothing to do.\n']);
    });
    expect(await states()).to.deep.equal(all('current'));
  });

  it('a database that is newer than the build, or of another tenant, is not migrated', async () => {
    await migrate('acme');
    const old = await runCommand('scripts/tenant.ts', ['migrate', 'acme', '--json'], world.environment);
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

  it('a rollback returns one tenant to the previous build, and the tenant can be migrated again', async () => {
    const old = await world.login(world.acme);
    const recent = old.at(serviceUrl);
    const otherTenant = await loginAt(serviceUrl, world.globex);
    const results = async (): Promise<(string | number)[]> =>
      (await Promise.all([old.get(path), recent.get(path)])).map(({ status, body }) => body.code ?? status);
    expect(await results()).to.deep.equal([200, 'migration_pending']);
    await migrate('acme', 'globex');
    await eventually(async () => expect(await results()).to.deep.equal(['migration_pending', 200]));

    expect((await runTenant(['rollback', 'acme'])).code, 'without --yes').to.equal(2);
    const rolledBack: ScriptResult = await runTenant(['rollback', 'acme', '--yes', '--despite-running', '--json']);
    expect(JSON.parse(rolledBack.stdout)).to.deep.equal({ slug: 'acme', from: next.head, to: next.currentHead });
    await eventually(async () => expect(await results()).to.deep.equal([200, 'migration_pending']));
    expect((await otherTenant.get(path)).status).to.equal(200);
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
    await eventually(async () => expect(await results()).to.deep.equal(['migration_pending', 200]));

    await query('update tenants set schema_version = null where slug = ?', ['acme']);
    const unclear = await runTenant(['rollback', 'acme', '--yes']);
    expect([unclear.code, unclear.stderr]).to.satisfy(
      ([code, text]: [number, string]) => code === 1 && /migrate it first/.test(text),
    );
  });

  it('migrate refuses a migration that runs outside a transaction, and names the alternative', async () => {
    const file = next.file('migrations/tenant/9999-alone.ts');
    await writeFile(
      file,
      `import { Migration } from '@mikro-orm/migrations';
       export class Alone extends Migration {
         override isTransactional = () => false;
         override up() { this.addSql('create index concurrently titles on entity_statuses (title)'); }
       }`,
    );
    const { code, stdout, stderr } = await runTenant(['migrate', '--all', '--despite-running']);
    await rm(file);
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr).to.match(/^9999-alone: a tenant migration must run in a transaction: .*without "concurrently"/);
  });

  /** Runs `work` while every tenant database refuses connections. */
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
