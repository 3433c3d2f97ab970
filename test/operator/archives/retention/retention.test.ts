import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../../src/control/server-urls.ts';
import { batchIds } from '../../../../src/operator/archives/retention/archived-history.ts';
import { generatePassword } from '../../../../src/operator/people/users.ts';
import { cutoffOf, parseAge } from '../../../../src/operator/retention/retention-age.ts';
import { withConnection } from '../../../../src/postgres/connection.ts';
import type { ScriptResult } from '../../../support/command-line.ts';
import { runCommand } from '../../../support/run-command.ts';
import { backUp, succeed } from '../../../support/succeed.ts';
import { useFolder } from '../../../support/use.ts';
import { sql, type TestTenant, useWorld } from '../../../support/world.ts';

interface Outcome {
  slug: string;
  state: string;
  removed: { kind: string; rows: number; archive: string }[];
  error: string | null;
}

/** Adds activities and audit entries: `old` of each from three years ago, and `recent` ones. */
async function addHistory(tenant: TestTenant, old: number, recent: number): Promise<void> {
  for (const [age, count] of [['3 years', old] as const, ['3 days', recent] as const]) {
    await sql(
      tenant,
      `insert into activities (created_at, activity_code, comment, recorded_by, recorded_from)
       select now() - $1::interval + i * interval '1 second', 7, E'Tab\\t, line\\n, \\\\ and ü', 1, '::1'
         from generate_series(1, $2::int) i`,
      [age, count],
    );
    await sql(
      tenant,
      `insert into audit_log (created_at, action, resource, record_key, after, database_user)
       select now() - $1::interval, 'update', 'Currency', i::text, '{"name": "Old\\nname"}', 'test'
         from generate_series(1, $2::int) i`,
      [age, count],
    );
  }
}

async function countHistory(tenant: Pick<TestTenant, 'adminUrl'>): Promise<number[]> {
  const [row] = await sql<Record<string, string>>(
    tenant,
    `select (select count(*) from activities) as activities, (select count(*) from audit_log where action = 'update') as audit,
            (select count(*) from activities where created_at < now() - interval '2 years') as old`,
  );
  return Object.values(row ?? {}).map(Number);
}

describe('retention of activities and audit entries', () => {
  const world = useWorld();
  const folder = useFolder();
  let environment: Record<string, string>;
  /** The database that is restored beside acme. */
  let old: Pick<TestTenant, 'adminUrl'>;

  const tenant = (...args: string[]): Promise<ScriptResult> => runCommand('scripts/tenant.ts', args, environment);
  const archive = (...args: string[]) => succeed(environment, 'tenant', ['backup', 'run', ...args]);
  const apply = async (...args: string[]): Promise<{ code: number | null; outcomes: Outcome[] }> => {
    const { code, stdout } = await tenant('retention', 'apply', ...args, '--json');
    const lines = stdout.split('\n').filter(Boolean);
    return { code, outcomes: lines.slice(0, -1).map(line => JSON.parse(line)) };
  };

  before(async () => {
    environment = { ...world.environment, BACKUP_TARGET: folder };
    // The old rows are in two batches.
    for (const table of ['activities', 'audit_log'])
      await sql(world.acme, `alter table ${table} alter id restart with ${batchIds - 40}`);
    await addHistory(world.acme, 60, 90);
    await addHistory(world.globex, 20, 30);
    const { code, stderr } = await tenant('retention', 'acme', '--activity', '2y', '--audit', '2y');
    expect(code, stderr).to.equal(0);
  });

  it('a tenant without an archive loses no row, and the command names the one that makes an archive', async () => {
    const { code, outcomes } = await apply('--all');
    expect([code, outcomes[0]?.slug, outcomes.length]).to.deep.equal([1, 'acme', 1]);
    expect(outcomes[0]?.error).to.match(/no complete archive in .*Run bin\/backoffice backup run acme$/);
    expect(await countHistory(world.acme)).to.deep.equal([150, 150, 60]);
  });

  it('old rows of the named tenant alone are removed, the removal is recorded, and the archive with the rows can be restored', async () => {
    await backUp(environment);
    const plan = await apply('--all', '--dry-run');
    expect(plan.outcomes.map(({ slug, state }) => [slug, state])).to.deep.equal([['acme', 'planned']]);
    expect(await countHistory(world.acme)).to.deep.equal([150, 150, 60]);
    const { code, outcomes } = await apply('--all');
    expect(code, JSON.stringify(outcomes)).to.equal(0);
    const removed = outcomes[0]?.removed ?? [];
    expect(removed.map(({ kind, rows }) => [kind, rows])).to.deep.equal([
      ['activity', 60],
      ['audit', 60],
    ]);
    expect(await countHistory(world.acme)).to.deep.equal([90, 90, 0]);
    expect(await countHistory(world.globex)).to.deep.equal([50, 50, 20]);

    const log = JSON.parse((await tenant('retention', 'log', 'acme', '--json')).stdout);
    expect(log.map((entry: Record<string, unknown>) => [entry.kind, entry.rows, entry.state])).to.deep.equal([
      ['audit', 60, 'done'],
      ['activity', 60, 'done'],
    ]);
    const archive = removed[0]?.archive ?? '';
    const restored = await tenant('restore', 'acme', '--archive', archive, '--json');
    expect(restored.code, restored.stderr).to.equal(0);
    const { database } = JSON.parse(restored.stdout);
    old = { adminUrl: databaseUrl(world.acme.adminUrl, database) };
    expect(await countHistory(old)).to.deep.equal([150, 150, 60]);
  });

  it('a run over all tenants opens no tenant whose old rows it has removed, and spares restored databases', async () => {
    await tenant('retention', '--default', '--audit', '2y');
    const { code, outcomes } = await apply('--all');
    expect(code).to.equal(0);
    expect(outcomes.map(({ slug, removed }) => [slug, removed.map(({ rows }) => rows)])).to.deep.equal([
      ['globex', [20]],
    ]);
    expect(await countHistory(old)).to.deep.equal([150, 150, 60]);
    await tenant('retention', '--default', '--audit', 'forever');
  });

  it('an archive that has removed rows is kept, although BACKUP_KEEP does not keep it', async () => {
    environment = { ...environment, BACKUP_KEEP: '1h,1d,1w,1m' };
    await sql(world.acme, `insert into currencies (code, name) values ('EUR', 'Euro')`);
    for (let time = 1; time <= 2; time++) await archive('--all');
    const archives = JSON.parse((await tenant('backup', 'list', 'acme', '--json')).stdout);
    expect(archives.map((archive: { keptUntil: unknown }) => archive.keptUntil !== null)).to.deep.equal([false, true]);
  });

  it('old rows that no archive has are not removed, and one such row keeps all rows of its batch', async () => {
    await sql(
      world.acme,
      `insert into activities (created_at, activity_code, recorded_by, recorded_from) overriding system value
       select now() - interval '30 months', 8, 1, '::1' from generate_series(1, 10)`,
    );
    const unarchived = await apply('acme');
    expect(unarchived.code).to.equal(1);
    expect(unarchived.outcomes[0]?.error).to.match(/^it has older activities than \S+ that its archive does not have/);
    expect((await countHistory(world.acme))[2]).to.equal(10);
    await archive('acme');
    const added = `insert into activities (created_at, activity_code, recorded_by, recorded_from)
                   values (now() - interval '29 months', 9, 1, '::1')`;
    await sql(world.acme, added);
    const { code, outcomes } = await apply('acme');
    expect(code).to.equal(1);
    expect(outcomes[0]?.error).to.include('11 activities are not the 10 that its archive has');
    expect((await countHistory(world.acme))[2]).to.equal(11);
    await archive('acme');
    expect((await apply('acme')).code).to.equal(0);
    expect((await countHistory(world.acme))[2]).to.equal(0);
  });

  it('more than half of the rows are removed only with --yes, and rows from the future stop a removal', async () => {
    await tenant('retention', 'globex', '--activity', '30d');
    await addHistory(world.globex, 100, 1);
    await archive('globex');
    const half = await apply('globex');
    expect(half.outcomes[0]?.error).to.match(/^120 of its 151 activities are from before .* more than half/);
    expect((await apply('--all', '--yes')).code).to.equal(2);
    await sql(
      world.globex,
      `insert into activities (created_at, activity_code, recorded_by, recorded_from)
       values (now() + interval '1 day', 9, 1, '::1')`,
    );
    const future = await apply('globex', '--yes');
    expect(future.outcomes[0]?.error).to.include('which has not come yet');
    expect((await countHistory(world.globex))[0]).to.equal(152);
  });

  it('a changed archive is found before a row is removed', async () => {
    await tenant('retention', 'acme', '--activity', '30d');
    await sql(
      world.acme,
      `insert into activities (created_at, activity_code, recorded_by, recorded_from)
       values (now() - interval '3 months', 9, 1, '::1')`,
    );
    await archive('acme');
    const [{ file }] = JSON.parse((await tenant('backup', 'list', 'acme', '--json')).stdout);
    await writeFile(join(folder, file), 'SBOARCH1');
    const { outcomes } = await apply('acme');
    expect(outcomes[0]?.error).to.match(/it ends too early: nothing is removed that no archive has/);
    expect((await countHistory(world.acme))[0]).to.equal(91);
  });

  it('neither the login of a tenant nor an operator with psql can remove rows, whatever they set', async () => {
    const { adminUrl, database } = world.acme;
    const password = generatePassword();
    await sql(world.acme, `alter role ${database} password '${password}'`);
    const attempt = (url: string, text: string): Promise<string> =>
      withConnection(url, client => client.query(text)).then(
        () => 'done',
        error => error.message,
      );
    const own = databaseUrl(adminUrl, database, { user: database, password });
    const lift = `set app.removal = 'activities'; `;
    for (const text of [`${lift} delete from activities`, 'delete from audit_log', 'truncate activities'])
      expect(await attempt(own, text)).to.match(/^permission denied for table/);
    for (const name of ['remove_old_activities', 'remove_old_audit_entries'])
      expect(await attempt(own, `select ${name}(1, 9, '2020-01-01')`)).to.match(/^permission denied for function/);
    await sql(world.acme, `grant delete on activities to ${database}`);
    expect(await attempt(own, `${lift} delete from activities`)).to.equal('activities is append-only');
    expect(await attempt(adminUrl, 'delete from activities')).to.equal('activities is append-only');
    expect(await attempt(adminUrl, `${lift} update activities set screen = 'x'`)).to.equal('activities is append-only');
    expect(await attempt(adminUrl, `select remove_old_activities(1, 9, now())`)).to.include('28 days');
  });
});

describe('age of a retention', () => {
  it('the cutoff is the beginning of a month, and at least the given age lies between it and now', () => {
    const now = new Date('2026-03-31T23:00:00Z');
    const cutoffs = ['30d', '90d', '1m', '18m', '2y', 'forever'].map(age =>
      cutoffOf(age, now)?.toISOString().slice(0, 10),
    );
    expect(cutoffs).to.deep.equal(['2026-03-01', '2025-12-01', '2026-02-01', '2024-09-01', '2024-03-01', undefined]);
  });

  it('an age is at least 30 days and at most 100 years', () => {
    expect(['29d', '0y', '101y', '2', 'y', '1.5y', '-2y'].map(parseAge)).to.deep.equal(Array(7).fill(undefined));
    expect(['30d', ' 2Y ', '18m', 'Forever'].map(parseAge)).to.deep.equal(['30d', '2y', '18m', 'forever']);
  });
});
