import { rm, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { type ScriptResult, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { sql, type TestTenant } from '../../support/world.ts';
import type { MigrationFleet } from './migration-fleet.ts';

const path = '/api/v1/EntityStatus';

/** Adds the tests of runs of `migrate` and `rollback`. */
export function testMigrationRuns(fleet: MigrationFleet): void {
  const { world, next, tenants, query, runTenant, migrate, linesOf, slugs, all } = fleet;
  const { blockMigration, versions, runs, states, expectAllMigratedOnce } = fleet;

  it('a run halts after failed canaries or after --max-failures, and the next run migrates the rest', async () => {
    await blockMigration(tenants[1] as TestTenant);
    const canary = await migrate('--all', '--canary', '2');
    expect(canary.code).to.equal(1);
    expect(linesOf(canary)).to.have.length(2);
    expect(await states()).to.deep.equal({ ...all('skipped'), acme: 'migrated', globex: 'failed' });
    expect((await runs()).map(({ state }) => state)).to.deep.equal(['halted']);
    const again = JSON.parse((await migrate('--retry-failed', '--dry-run')).stdout);
    expect(again.plans.flatMap((plan: { tenants: string[] }) => plan.tenants)).to.deep.equal([
      'globex',
    ]);

    const options = ['--max-failures', '1', '--concurrency', '1'];
    const limited = await runTenant(['migrate', '--all', '--despite-running', ...options]);
    expect([limited.code, limited.stdout]).to.satisfy(
      ([code, text]: [number, string]) =>
        code === 1 && /^Halted: 0 migrated, 1 failed, 1 not started\.$/m.test(text),
    );
    expect(await states()).to.deep.equal({
      acme: 'current',
      globex: 'failed',
      'tenant-01': 'skipped',
    });
    await sql(tenants[1] as TestTenant, 'drop table labels');
    expect((await migrate('--all', '--canary', '1')).code).to.equal(0);
    await expectAllMigratedOnce();
  });

  it('a run migrates all other tenants and reports the failed one, whose failure stays until a retry has migrated it', async () => {
    const [broken, first] = tenants as [TestTenant, TestTenant];
    await blockMigration(broken);
    const { code, stdout, stderr } = await migrate('--all');
    expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
    const failed = linesOf({ stdout }).filter(({ state }) => state === 'failed');
    expect(failed.map(({ slug }) => slug)).to.deep.equal([broken.slug]);
    expect(failed[0]?.error).to.match(new RegExp(`^${next.head}: .*labels`));
    expect(await versions()).to.deep.equal({ ...all(next.head), [broken.slug]: next.currentHead });

    const text = await runTenant(['status']);
    expect(text.stdout)
      .to.match(/failed/)
      .and.to.include(broken.slug)
      .and.to.include('labels');
    const status = JSON.parse((await runTenant(['status', '--json'])).stdout);
    expect(status.lastRun).to.deep.include({ state: 'failed', head: next.head });
    expect(status.lastRun.failures).to.have.length(1);
    expect(status.fleet).to.deep.equal([
      { schemaVersion: next.head, status: 'active', tenants: 2 },
      { schemaVersion: next.currentHead, status: 'active', tenants: 1 },
    ]);

    await sql(broken, 'drop table labels');
    // A later run without the failed tenant does not clear its failure.
    expect((await migrate(first.slug)).code).to.equal(0);
    expect(JSON.parse((await runTenant(['status', '--json'])).stdout).failing).to.have.length(1);
    const retried = await migrate('--retry-failed');
    expect(linesOf(retried).map(({ slug, state }) => [slug, state])).to.deep.equal([
      [broken.slug, 'migrated'],
    ]);
    expect(await states()).to.deep.equal({ [broken.slug]: 'migrated' });
    await expectAllMigratedOnce();
  });

  it('migrate --dry-run prints the SQL for each version and opens no tenant database', async () => {
    const afterNext = next.file('migrations/tenant/9999-sizes.ts');
    await writeFile(afterNext, laterMigration);
    await query('update tenants set schema_version = ? where slug <> ?', [next.head, 'acme']);

    await closeDatabases(async () => {
      const document = JSON.parse((await migrate('--all', '--dry-run')).stdout);
      expect(document.head).to.equal('9999-sizes');

      const [old, recent] = document.plans;
      const names = ({ migrations }: { migrations: { name: string }[] }) =>
        migrations.map(({ name }) => name);

      expect(old.version).to.equal(next.currentHead);
      expect(old.tenants).to.deep.equal(['acme']);
      expect(names(old)).to.deep.equal([next.head, '9999-sizes']);
      expect(old.migrations[0].sql[0]).to.match(/^create table labels/);

      expect(recent.version).to.equal(next.head);
      expect(recent.tenants).to.deep.equal(slugs().slice(1));
      expect(names(recent)).to.deep.equal(['9999-sizes']);

      await rm(afterNext);
      await query('update tenants set schema_version = ?', [next.currentHead]);

      const text = await runTenant(['migrate', 'globex', '--dry-run']);
      expect(text.stdout).to.include('create table labels').and.not.include('acme');
    });

    expect(await runs()).to.deep.equal([]);
  });

  it('a run of a tenant that does not exist is refused, and so is its plan', async () => {
    for (const options of [[], ['--dry-run']]) {
      const { code, stderr } = await runTenant(['migrate', 'acme', 'a{b', ...options]);
      expect([code, stderr]).to.deep.equal([
        1,
        'There is no tenant a{b. List the tenants: bin/backoffice list\n',
      ]);
    }
  });

  // A drill kills two runs, lets two run at once, and migrates a fleet under load.
  it('a killed run is completed by the next one, and each tenant is migrated once', async () => {
    const args = ['migrate', '--json', '--despite-running', '--all'];
    const script = next.file('scripts/tenant.ts');
    const killed = startScript(script, [...args, '--concurrency', '1'], world.environment);

    await eventually(() => linesOf(killed.output).length > 0);
    killed.process.kill('SIGKILL');
    const before = linesOf(await killed.ended).map(({ slug }) => slug);

    const again = await runTenant(args);
    expect(again.code, again.stderr).to.equal(0);
    expect(again.stderr).to.equal('');

    const after = linesOf(again).map(({ slug }) => slug);
    expect([...before, ...after].sort()).to.deep.equal(slugs());
    expect((await runs()).map(({ state }) => state)).to.deep.equal(['abandoned', 'succeeded']);

    expect(
      await query(`select from migration_outcomes where state in ('pending', 'running')`),
    ).to.deep.equal([]);
    await expectAllMigratedOnce();
  });

  it('a tenant whose schema differs from the template fails with the differences and is not changed', async () => {
    await sql(world.globex, 'drop index entities_status_id_id_index');
    const { code, stdout } = await migrate('globex', 'acme');
    expect(code).to.equal(1);
    const globex = linesOf({ stdout }).find(({ slug }) => slug === 'globex');
    expect(globex).to.include({ state: 'failed', from: next.currentHead, to: next.currentHead });
    expect(globex?.error).to.include('index entities_status_id_id_index is missing');
    expect(await sql(world.globex, `select to_regclass('labels') as found`)).to.deep.equal([
      { found: null },
    ]);
    expect((await runTenant(['status'])).stdout).to.include(
      'index entities_status_id_id_index is missing',
    );
  });

  it('a failed migration tells its SQLSTATE, the statement, and its place in the log of the server', async () => {
    const [broken] = tenants as [TestTenant];
    await blockMigration(broken);

    const { stdout } = await migrate(broken.slug);
    const text = await runTenant(['migrate', broken.slug, '--despite-running']);

    const failure = linesOf({ stdout })[0]?.failure;
    expect(failure).to.include({ sqlState: '42P07', migration: next.head });
    expect(failure?.statement).to.match(/^create table labels/);
    expect(failure?.log).to.include({ server: 'default', database: broken.database });
    expect(failure?.log?.process).to.be.above(0);
    expect(Date.parse(failure?.log?.at ?? '')).to.be.within(Date.now() - 120_000, Date.now());
    expect(text.stdout)
      .to.include('SQLSTATE 42P07 in the statement')
      .and.match(/In the log of server default: .* UTC, process \d+, database /);
    const [run] = await runs();
    const shown = JSON.parse((await runTenant(['runs', 'show', '--json'])).stdout);
    expect(run?.state).to.equal('failed');
    expect(shown.tenants[0].failure.sqlState).to.equal('42P07');
  });

  it('all differences of a schema are told at once, as SQL that undoes them, by the run and while the tenant is behind by doctor', async () => {
    const { globex } = world;
    await sql(
      globex,
      'create index by_hand on countries (country_name); alter table currencies add column extra text',
    );

    const { stdout } = await migrate('globex');
    await runTenant(['doctor']);
    const findings: {
      check: string;
      tenant: string;
      id: string;
      problem: string;
      remedy: string;
    }[] = JSON.parse((await runTenant(['doctor', '--json'])).stdout).findings.filter(
      ({ tenant }: { tenant: string }) => tenant === 'globex',
    );
    const plan = await runTenant(['migrate', 'globex', '--dry-run', '--despite-running']);

    const [outcome] = linesOf({ stdout });
    expect(outcome?.error).to.include('in 2 objects: column currencies.extra, index by_hand');
    expect(outcome?.failure?.differences.map(({ object, sql }) => [object, sql])).to.deep.equal([
      [
        'column currencies.extra',
        [
          'create schema if not exists "kept"',
          'create table "kept"."currencies.extra" as table "currencies"',
          'alter table "currencies" drop column "extra"',
        ],
      ],
      ['index by_hand', ['drop index if exists "by_hand"']],
    ]);
    const drift = findings.filter(({ check }) => check === 'schema_drift');
    expect(drift).to.have.length(2);
    expect(findings.find(({ check }) => check === 'behind')?.remedy).to.match(
      /^Repair its schema_drift first/,
    );
    expect(plan.stdout).to.include(`Will fail: globex, finding ${drift[0]?.id} of doctor`);

    const repaired = await runTenant(['doctor', '--fix', ...drift.map(({ id }) => id), '--json']);
    const left = JSON.parse(repaired.stdout).findings.filter(
      ({ check }: { check: string }) => check === 'schema_drift',
    );
    expect(left.every(({ fixed }: { fixed: boolean }) => fixed)).to.equal(true);
    expect(linesOf(await migrate('globex'))[0]?.state).to.equal('migrated');
    await sql(globex, 'drop schema kept cascade');
  });

  it('the plan of a run names its canaries', async () => {
    const plan = await runTenant([
      'migrate',
      '--all',
      '--canary',
      '2',
      '--dry-run',
      '--despite-running',
    ]);

    expect(plan.stdout).to.include(
      '-- First: acme, globex. The others follow if none of these fails',
    );
  });

  it('a report of another build offers no repair, and an older build leaves the template of a newer one alone', async () => {
    await runTenant(['doctor']);
    await sql(world.acme, 'create index by_hand on countries (country_name)');
    try {
      const stored = await runTenant(['doctor', '--json']);
      const [drift] = JSON.parse(stored.stdout).findings.filter(
        ({ check }: { check: string }) => check === 'schema_drift',
      );
      const refused = await runCommand(
        'scripts/tenant.ts',
        ['doctor', '--fix', drift.id, '--dry-run'],
        world.environment,
      );
      const older = await runCommand('scripts/tenant.ts', ['doctor', '--json'], world.environment);

      expect(refused.code).to.equal(1);
      expect(refused.stderr).to.include('The last report is of another build');
      const templates = JSON.parse(older.stdout).findings.filter(
        ({ check }: { check: string }) => check === 'old_template',
      );
      const { migrationsDigest } = await import(next.file('src/operator/schema/template.ts'));
      const digest: string = await migrationsDigest();
      expect(
        templates.filter(({ problem }: { problem: string }) => problem.includes(digest)),
      ).to.deep.equal([]);
    } finally {
      await sql(world.acme, 'drop index by_hand');
    }
  });

  it('a migration run with nothing to do opens no tenant database', async () => {
    await migrate('--all');
    await closeDatabases(async () => {
      const { code, stdout } = await runTenant(['migrate', '--all']);
      expect([code, stdout]).to.deep.equal([0, 'Nothing to do.\n']);
    });
    expect(await states()).to.deep.equal(all('current'));
  });

  it('a database that is newer than the build, missing, or of another tenant, is not migrated', async () => {
    await migrate('acme');
    const old = await runCommand('scripts/tenant.ts', ['migrate', 'acme'], world.environment);
    expect(old.code).to.equal(1);
    expect(old.stderr).to.match(/^acme is at version .*labels, of a later build: use that build/);
    expect((await versions()).acme).to.equal(next.head);

    await query('update tenants set database_name = ? where slug = ?', ['elsewhere', 'globex']);
    await query('update tenants set database_name = ? where slug = ?', [
      world.globex.database,
      'tenant-01',
    ]);
    try {
      const outcomes = linesOf(await migrate('globex', 'tenant-01'));
      expect(outcomes.map(({ slug, state }) => `${slug} ${state}`)).to.have.members([
        'globex failed',
        'tenant-01 failed',
      ]);
      const foreign = outcomes.find(({ slug }) => slug === 'tenant-01');
      expect(foreign?.error).to.equal('the database belongs to another tenant');
      const created = `select from pg_database where datname = 'elsewhere'`;
      expect(
        await sql(world.acme, created),
        'a missing database is not created again, empty',
      ).to.deep.equal([]);
      expect(await sql(world.globex, `select to_regclass('labels') as found`)).to.deep.equal([
        { found: null },
      ]);
    } finally {
      const [, , first] = tenants as [TestTenant, TestTenant, TestTenant];
      await query('update tenants set database_name = ? where slug = ?', [
        first.database,
        'tenant-01',
      ]);
      await query('update tenants set database_name = ? where slug = ?', [
        world.globex.database,
        'globex',
      ]);
    }
  });

  it('a rollback returns one tenant to the previous build, and the tenant can be migrated again', async () => {
    const [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    const results = async (): Promise<(string | number)[]> =>
      (await Promise.all([acme.get(path), globex.get(path)])).map(
        ({ status, body }) => body.code ?? status,
      );
    expect(await results()).to.deep.equal([200, 200]);
    await migrate('acme', 'globex');
    await eventually(async () =>
      expect(await results()).to.deep.equal(['migration_pending', 'migration_pending']),
    );

    expect((await runTenant(['rollback', 'acme'])).code, 'without --yes').to.equal(2);
    const rolledBack: ScriptResult = await runTenant([
      'rollback',
      'acme',
      '--yes',
      '--despite-running',
      '--json',
    ]);
    expect(JSON.parse(rolledBack.stdout)).to.deep.equal({
      slug: 'acme',
      from: next.head,
      to: next.currentHead,
    });
    await eventually(async () => expect(await results()).to.deep.equal([200, 'migration_pending']));
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
    expect(await sql(world.acme, `select to_regclass('labels') as found`)).to.deep.equal([
      { found: null },
    ]);

    expect((await migrate('acme')).code).to.equal(0);
    await eventually(async () =>
      expect(await results()).to.deep.equal(['migration_pending', 'migration_pending']),
    );

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
    expect(stderr).to.match(
      /^9999-alone: a tenant migration must run in a transaction: .*without "concurrently"/,
    );
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
}

/** A migration after that of the next build. */
const laterMigration = `
import { Migration } from '@mikro-orm/migrations';

export class Sizes extends Migration {
  override up(): void {
    this.addSql('create table sizes (id integer)');
  }
}
`;
