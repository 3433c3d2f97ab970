import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { batchIds } from '../../src/operator/backup/retention/old-rows.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { useFolder } from '../support/use.ts';
import { sql, useWorld } from '../support/world.ts';

const old = 200_000;
const recent = 250_000;

describe('drill: killed removals of old activities', () => {
  const folder = useFolder();
  const world = useWorld();
  let environment: Record<string, string>;

  before(async () => {
    environment = { ...world.environment, ...(await backupSettings(folder)) };
    for (const tenant of [world.acme, world.globex]) {
      await sql(
        tenant,
        `insert into activities (created_at, activity_code, recorded_by, recorded_from)
         select now() - case when i <= ${old} then interval '3 years' else interval '3 days' end, 7, 1, '::1'
           from generate_series(1, ${old + recent}) i`,
      );
    }
  });

  const counts = async (): Promise<{ old: number; recent: number }> => {
    const [row] = await sql<{ old: string; recent: string }>(
      world.acme,
      `select count(*) filter (where created_at < now() - interval '2 years') as old,
              count(*) filter (where created_at >= now() - interval '2 years') as recent from activities`,
    );
    return { old: Number(row?.old), recent: Number(row?.recent) };
  };

  const removals = async (condition: string): Promise<number> => {
    const rows = await sql(
      world.acme,
      `select from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and query like '%select remove_old_activities(%' and ${condition}`,
    );
    return rows.length;
  };

  it('a run that is killed in a batch is continued by the next one, and their entries count every row once', async () => {
    const run = (...args: string[]) =>
      runScript('scripts/tenant.ts', [...args, '--json'], environment);

    expect((await run('retention', 'acme', '--activity', '2y')).code).to.equal(0);
    expect((await run('backup', 'init')).code).to.equal(0);
    expect((await run('backup', 'run', '--all')).code).to.equal(0);
    expect((await run('backup', 'drill', '--count', '9')).code).to.equal(0);

    for (const [index, batch] of [1, 7, 20, 39].entries()) {
      // Removes the batches before this one, and waits for its first row.
      await withConnection(world.acme.adminUrl, async blocker => {
        await blocker.query(
          `begin; select from activities where id = ${batch * batchIds + 1} for update`,
        );

        const killed = startScript(
          'scripts/tenant.ts',
          ['retention', 'apply', '--all'],
          environment,
        );
        await eventually(async () => (await removals("wait_event_type = 'Lock'")) === 1);
        killed.process.kill('SIGKILL');
        await killed.ended;
      });

      await eventually(async () => (await removals("state = 'active'")) === 0);
      expect(
        await counts(),
        'whole batches of ids from 1 to 5,000, 5,001 to 10,000 and so on',
      ).to.deep.equal({
        old: old - batch * batchIds,
        recent,
      });

      // An archive that is made in between has no proof: the next run goes on with the first
      // one.
      if (index === 1) expect((await run('backup', 'run', '--all')).code).to.equal(0);
    }

    const { code, stdout } = await run('retention', 'apply', '--all');
    expect(code, stdout).to.equal(0);
    expect(await counts()).to.deep.equal({ old: 0, recent });

    const log = JSON.parse((await run('retention', 'log')).stdout);
    const entries: { rows: number; state: string }[] = log;
    expect(entries.map(({ state }) => state)).to.deep.equal(['done', ...Array(4).fill('stopped')]);
    expect(entries.reduce((sum, { rows }) => sum + rows, 0)).to.equal(old);

    const [{ count }] = (await sql<{ count: string }>(
      world.globex,
      'select count(*) from activities',
    )) as [{ count: string }];
    expect(Number(count)).to.equal(old + recent);
  });
});
