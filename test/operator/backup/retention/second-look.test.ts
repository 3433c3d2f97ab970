import { expect } from 'chai';
import { databaseUrl } from '../../../../src/control/server-urls.ts';
import { withConnection } from '../../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../../support/backup-settings.ts';
import { runScript } from '../../../support/command-line.ts';
import { eventually } from '../../../support/eventually.ts';
import { readLockWaiters } from '../../../support/lock-waiters.ts';
import { useServerFolder } from '../../../support/server-folder.ts';
import { backUp, succeed } from '../../../support/succeed.ts';
import { use } from '../../../support/use.ts';
import { createWorld, sql, type TestTenant } from '../../../support/world.ts';

describe('changes while retention removes the rows of another tenant', () => {
  const archives = useServerFolder('archives');
  const world = use(async () => createWorld(await backupSettings(archives)));
  const tenant = (...args: string[]) => succeed(world.environment, 'tenant', args);

  const addOld = ({ adminUrl }: TestTenant) =>
    withConnection(adminUrl, client =>
      client.query(
        `insert into activities (created_at, activity_code, recorded_by, recorded_from)
         select now() - interval '3 years', 7, 1, '::1' from generate_series(1, 20)`,
      ),
    );
  const countOld = (database: string): Promise<number> =>
    withConnection(databaseUrl(world.globex.adminUrl, database), async client => {
      const { rows } = await client.query<{ count: number }>(
        `select count(*)::int as count from activities where created_at < now() - interval '2 years'`,
      );
      return rows[0]?.count ?? -1;
    });
  const presentDatabase = async (): Promise<string> =>
    JSON.parse(await tenant('show', 'globex', '--json')).database;

  /**
   * Removes the old rows of acme and then of globex, which no archive has to have.
   * @param meanwhile runs after the run has found both, and before it comes to globex
   */
  async function apply(meanwhile: () => Promise<unknown>): Promise<void> {
    const run = await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin');
      await client.query('lock table activities');
      const started = runScript(
        'scripts/tenant.ts',
        ['retention', 'apply', 'acme', 'globex', '--without-archive', '--yes', '--concurrency=1'],
        world.environment,
      );
      await eventually(async () => (await readLockWaiters(client)).length > 0);

      await meanwhile();

      await client.query('rollback');
      return { ended: started };
    });
    const { code, stdout, stderr } = await run.ended;
    expect(code, stdout + stderr).to.equal(0);
    expect(stdout).to.include('acme: removed 20 activities');
  }

  before(async () => {
    for (const slug of ['acme', 'globex']) await tenant('retention', slug, '--activity', '2y');
    await addOld(world.globex);
    await backUp(world.environment);
    await tenant('restore', 'globex', '--archive', 'latest');
  });
  beforeEach(() => addOld(world.acme));

  it('a tenant whose rows are meanwhile to be kept for ever loses none', async () => {
    const { database } = world.globex;

    await apply(() => tenant('retention', 'globex', '--activity', 'forever'));

    expect(await countOld(database)).to.equal(20);
    await tenant('retention', 'globex', '--activity', '2y');
  });

  it('a tenant that gets another database meanwhile loses the old rows of that database, and none of its former one', async () => {
    const former = await presentDatabase();

    await apply(() => tenant('restore', 'swap', 'globex', '--yes'));

    const present = await presentDatabase();
    expect(present).not.to.equal(former);
    expect(await countOld(former)).to.equal(20);
    expect(await countOld(present)).to.equal(0);
    expect(await sql(world.acme, 'select from activities')).to.deep.equal([]);
  });
});
