import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { recordProof } from '../../../src/operator/backup/archive-rows.ts';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import {
  checkRetention,
  readOverdueRetention,
} from '../../../src/operator/doctor/check-archives.ts';
import { writeRecorded } from '../../support/recorded-archive.ts';
import { runCommand } from '../../support/run-command.ts';
import { runSmall } from '../../support/small-archives.ts';
import { useEach, useFolder } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant } from '../../support/world.ts';

interface Outcome {
  slug: string;
  state: string;
  removed: { kind: string; rows: number; archive: string | null }[];
  error: string | null;
}

/** Adds activities and audit entries: `old` of each from three years ago, and `recent` ones. */
async function addHistory(tenant: TestTenant, old: number, recent: number): Promise<void> {
  for (const [age, count] of [['3 years', old] as const, ['3 days', recent] as const]) {
    await sql(
      tenant,
      `insert into activities (created_at, activity_code, recorded_by, recorded_from)
       select now() - $1::interval + i * interval '1 second', 7, 1, '::1' from generate_series(1, $2::int) i`,
      [age, count],
    );
    await sql(
      tenant,
      `insert into audit_log (created_at, action, resource, record_key, after, database_user)
       select now() - $1::interval, 'update', 'Currency', i::text, '{}', 'test' from generate_series(1, $2::int) i`,
      [age, count],
    );
  }
}

async function countHistory(
  tenant: TestTenant,
): Promise<{ activities: number; audit: number; old: number }> {
  const [row] = await sql<{ activities: number; audit: number; old: number }>(
    tenant,
    `select (select count(*)::int from activities) as activities,
            (select count(*)::int from audit_log where action = 'update') as audit,
            (select count(*)::int from activities where created_at < now() - interval '2 years') as old`,
  );
  return row ?? { activities: 0, audit: 0, old: 0 };
}

describe('retention by proved archives', () => {
  const world = useEach(() => createWorld());
  const folder = useFolder();
  let environment: Record<string, string>;
  let target: Target;

  const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
  const apply = async (
    ...args: string[]
  ): Promise<{ code: number | null; outcomes: Outcome[] }> => {
    const { code, stdout } = await tenant('retention', 'apply', ...args, '--json');
    const lines = stdout.split('\n').filter(Boolean);
    return { code, outcomes: lines.slice(0, -1).map(line => JSON.parse(line)) };
  };
  const newestOf = async (slug: string): Promise<string> => {
    const [row] = await controlSql<{ name: string }>(
      world,
      `select a.name from archives a join tenants on guid = tenant_guid
        where slug = ? and state = 'complete' order by archived_at desc limit 1`,
      [slug],
    );
    return row?.name ?? '';
  };
  /** Records what a drill of an archive would. */
  const recordDrill = (name: string, fault: string | null = null) =>
    withConnection(world.installation.controlUrl, control =>
      recordProof(control, target, name, fault, 'proved'),
    );
  /** Records what a drill of the newest archive of a tenant would. */
  const prove = async (slug: string, fault: string | null = null): Promise<string> => {
    const name = await newestOf(slug);
    await recordDrill(name, fault);
    return name;
  };
  const setOf = (name: string, change: string) =>
    controlSql(world, `update archives set ${change} where name = ?`, [name]);

  beforeEach(async () => {
    const place = await mkdtemp(join(folder, 'target-'));
    environment = { ...world.environment, BACKUP_TARGET: place };
    target = await openTarget(readConfig(environment).backup);
    await withBackupLock(world.installation.controlUrl, 'archives', control =>
      initTarget(control, target, { takeOver: false, isDryRun: false }),
    );
    // The old rows are in two batches.
    for (const table of ['activities', 'audit_log']) {
      await sql(world.acme, `alter table ${table} alter id restart with ${5_000 - 40}`);
    }
    await addHistory(world.acme, 60, 90);
    await addHistory(world.globex, 20, 30);
    const { code, stderr } = await tenant('retention', 'acme', '--activity', '2y', '--audit', '2y');
    expect(code, stderr).to.equal(0);
  });

  it('a tenant without a proved archive is left out with the reason, loses no row, and is no failure', async () => {
    const none = await apply('--all');
    expect(none.code).to.equal(0);
    expect(none.outcomes.map(({ slug, state }) => ({ slug, state }))).to.deep.equal([
      { slug: 'acme', state: 'left out' },
    ]);
    expect(none.outcomes[0]?.error).to.match(
      /^no archive of it was restored and compared\. .*backup run acme, then bin\/backoffice backup drill$/,
    );

    await runSmall(world.installation, target);
    expect((await apply('--all')).outcomes[0]?.error).to.match(
      /^no archive of it was restored and compared/,
    );
    await prove('acme', 'a byte of it was changed');
    expect((await apply('--all')).outcomes[0]?.error).to.match(
      /^no archive of it was restored and compared/,
    );
    await runSmall(world.installation, target);
    const name = await prove('acme');
    await setOf(name, `schema_version = '0000-another'`);
    expect((await apply('--all')).outcomes[0]?.error).to.match(
      /^its newest proved archive of \S+ has another schema/,
    );
    await setOf(name, `schema_version = (select schema_version from tenants where slug = 'acme')`);

    expect(await countHistory(world.acme)).to.deep.equal({ activities: 150, audit: 150, old: 60 });
  });

  it('old rows of the named tenant alone are removed once an archive with them is proved, and the removal is recorded', async () => {
    await runSmall(world.installation, target);
    const name = await prove('acme');
    const plan = await apply('--all', '--dry-run');
    expect(plan.outcomes.map(({ slug, state }) => ({ slug, state }))).to.deep.equal([
      { slug: 'acme', state: 'planned' },
    ]);
    expect((await countHistory(world.acme)).old).to.equal(60);

    const { code, outcomes } = await apply('--all');

    expect(code, JSON.stringify(outcomes)).to.equal(0);
    const rows = outcomes[0]?.removed.map(({ kind, rows: count, archive }) => ({
      kind,
      count,
      archive,
    }));
    expect(rows).to.deep.equal([
      { kind: 'activity', count: 60, archive: name },
      { kind: 'audit', count: 60, archive: name },
    ]);
    expect(await countHistory(world.acme)).to.deep.equal({ activities: 90, audit: 90, old: 0 });
    expect(await countHistory(world.globex)).to.deep.equal({ activities: 50, audit: 50, old: 20 });

    const log = JSON.parse((await tenant('retention', 'log', 'acme', '--json')).stdout);
    const entries = log.map(({ kind, rows: count, state, archive }: Record<string, unknown>) => ({
      kind,
      count,
      state,
      archive,
    }));
    expect(entries).to.deep.equal([
      { kind: 'audit', count: 60, state: 'done', archive: name },
      { kind: 'activity', count: 60, state: 'done', archive: name },
    ]);
    expect((await apply('--all')).outcomes, 'it is not opened again').to.deep.equal([]);
  });

  it('an archive that the target does not list any more proves nothing', async () => {
    await runSmall(world.installation, target);
    await prove('acme');
    for await (const { name } of target.list('')) {
      if (name.includes(world.acme.guid)) await target.remove(name);
    }

    const { outcomes } = await apply('acme');

    expect(outcomes[0]?.error).to.include('is not there any more: the target does not list it');
    expect((await countHistory(world.acme)).old).to.equal(60);
  });

  it('an archive that may lack the rows proves nothing: less than an hour after them, or of a database that was exchanged', async () => {
    const [row] = await sql<{ newest: Date }>(
      world.acme,
      `select max(created_at) as newest from activities where created_at < now() - interval '2 years'`,
    );
    /** An archive that was made so long after the newest of the old rows, and proved. */
    const proveAfter = async (minutes: number): Promise<string> => {
      const time = new Date((row?.newest.getTime() ?? 0) + minutes * 60_000);
      const name = await writeRecorded(world.installation.controlUrl, target, {
        tenant: world.acme.guid,
        time,
      });
      await recordDrill(name);
      return name;
    };

    await proveAfter(59);
    expect((await apply('acme')).outcomes[0]?.error).to.include(
      'is not an hour younger than the rows that go',
    );

    const name = await proveAfter(61);
    for (const change of ['database_id = database_id + 1', 'epoch = epoch + 1']) {
      await setOf(name, change);
      expect((await apply('acme')).outcomes[0]?.error).to.include(
        'is of another database than it has now',
      );
      await setOf(name, change.replace('+', '-'));
    }
    expect((await countHistory(world.acme)).old).to.equal(60);

    const { outcomes } = await apply('acme');
    expect(outcomes[0]?.removed.map(({ rows, archive }) => ({ rows, archive }))).to.deep.equal([
      { rows: 60, archive: name },
      { rows: 60, archive: name },
    ]);
  });

  it('rows that no archive has are removed only for named tenants with --without-archive', async () => {
    await tenant('retention', 'globex', '--activity', '2y');
    expect((await apply('globex')).outcomes[0]?.state).to.equal('left out');
    expect((await apply('--all', '--without-archive')).code).to.equal(2);

    const { code, outcomes } = await apply('globex', '--without-archive');

    expect(code).to.equal(0);
    expect(outcomes[0]?.removed.map(({ rows, archive }) => ({ rows, archive }))).to.deep.equal([
      { rows: 20, archive: null },
    ]);
    expect((await countHistory(world.globex)).old).to.equal(0);
  });

  it('more than half of the rows are removed only with --yes, and rows from the future stop a removal', async () => {
    await tenant('retention', 'globex', '--activity', '2y');
    await addHistory(world.globex, 80, 1);
    await runSmall(world.installation, target);
    await prove('globex');
    const half = await apply('globex');
    expect(half.code).to.equal(1);
    expect(half.outcomes[0]?.error).to.match(
      /^100 of its 131 activities are from before .* more than half/,
    );
    expect((await apply('--all', '--yes')).code).to.equal(2);

    await sql(
      world.globex,
      `insert into activities (created_at, activity_code, recorded_by, recorded_from)
       values (now() + interval '1 day', 9, 1, '::1')`,
    );
    const future = await apply('globex', '--yes');
    expect(future.outcomes[0]?.error).to.include('which has not come yet');
    expect((await countHistory(world.globex)).activities).to.equal(132);
  });

  it('doctor names a tenant whose retention has been due for 60 days, and no other, and counts a removal from a former database until the present one is 60 days old', async () => {
    const findings = async (): Promise<string[]> => {
      const overdue = await withConnection(world.installation.controlUrl, readOverdueRetention);
      return checkRetention(overdue).map(({ tenant: slug, check }) => `${slug}: ${check}`);
    };
    await tenant('retention', 'globex', '--activity', '2y');
    expect((await apply('acme', '--without-archive')).code).to.equal(0);
    expect(await findings()).to.deep.equal([]);

    await controlSql(world, `update tenants set created_at = now() - interval '100 days'`);
    await controlSql(
      world,
      `update retention_policies set changed_at = now() - interval '61 days'`,
    );

    expect(await findings()).to.deep.equal(['globex: retention_behind']);

    // As a restore does, which fills another database.
    await controlSql(world, `update history_removals set database_name = 'former'`);
    await controlSql(
      world,
      `update tenant_databases set current_since = now() - interval '59 days'`,
    );
    expect(await findings()).to.deep.equal(['globex: retention_behind']);
    await controlSql(
      world,
      `update tenant_databases set current_since = now() - interval '61 days'`,
    );
    expect(await findings()).to.deep.equal(['acme: retention_behind', 'globex: retention_behind']);
  });
});
