import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import type { DatabaseStep } from '../../src/operator/databases/protocol/database-protocol.ts';
import { eventually } from '../support/eventually.ts';
import { useRestoredTenant } from '../support/restored-tenant.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql } from '../support/world.ts';

/** The steps before which runs are paused, by what the runs do. */
const pausedSwap = [
  'upgrade target',
  'close current',
  'exchange',
  'open current',
] satisfies DatabaseStep[];
const pausedBeside = ['create', 'fill', 'complete'] satisfies DatabaseStep[];
const pausedLost = [
  'condemn leftovers',
  'create',
  'fill',
  'require lost',
  'exchange',
  'serve',
] satisfies DatabaseStep[];
/** The steps of a restore beside a tenant that is purged meanwhile. */
const purged = ['create', 'fill'] satisfies DatabaseStep[];

describe('drill: restores that are paused', () => {
  const { world, command, run, post, titles, checks, pause } = useRestoredTenant();
  const control = <Row extends object>(text: string): Promise<Row[]> => controlSql(world, text);

  /** The names of the databases of a tenant, by state. */
  const databases = async (slug = 'acme'): Promise<Record<string, string[]>> => {
    const rows = await control<{ state: string; names: string[] }>(
      `select d.state, array_agg(d.database_name order by d.id) as names
         from tenant_databases d join tenants t on t.id = tenant_id
        where slug = '${slug}' and d.state <> 'gone' group by 1`,
    );
    return Object.fromEntries(rows.map(({ state, names }) => [state, names]));
  };
  const exists = async (database: string): Promise<boolean> =>
    withConnection(postgresUrl(), async client => {
      const { rowCount } = await client.query('select from pg_database where datname = $1', [
        database,
      ]);
      return rowCount === 1;
    });

  for (const step of pausedSwap) {
    it(`a swap that was paused before the step ${step} while another one was undone harms nothing when it goes on`, async () => {
      const goOn = await pause('swap', step);
      await run('restore', 'swap', 'acme', '--yes');
      await run('restore', 'back', 'acme', '--yes');
      const { code, stderr } = await goOn();
      expect(code, stderr).not.to.equal(0);
      expect(await titles()).to.include.members(['restored', 'later']);
      expect(await post(`after ${step}`)).to.equal(201);
      expect(await checks()).to.deep.equal([]);
    });
  }

  it('a run that was paused before it drops a database does not drop one that the tenant has got meanwhile', async () => {
    const { kept: [aside = ''] = [] } = await databases();
    await run('delete', 'acme', '--yes');
    const goOn = await pause('purge', 'condemn');

    await control(`update tenants set status = 'active', purging_at = null where slug = 'acme'`);
    await run('restore', 'swap', 'acme', '--yes');

    const { code, stderr } = await goOn();
    expect(code, stderr).not.to.equal(0);

    expect((await databases()).current).to.deep.equal([aside]);
    await eventually(async () => (await titles()).includes('restored'));
    expect(await titles()).not.to.include('later');
    expect(await post('kept')).to.equal(201);

    await run('restore', 'back', 'acme', '--yes');
    expect(await titles()).to.include('later');
    expect(await checks()).to.deep.equal([]);
  });

  for (const step of pausedBeside) {
    it(`a restore beside that was paused before the step ${step} neither completes nor changes what another one restores`, async () => {
      const goOn = await pause('beside', step);
      const { reserved: [begun = ''] = [] } = await databases();
      await run('restore', 'acme', '--archive', 'latest');
      const { filled: [restored = ''] = [] } = await databases();

      const { code } = await goOn();
      expect(code).not.to.equal(0);

      const { filled, reserved, condemned } = await databases();
      expect({ filled, reserved, condemned }).to.deep.equal({
        filled: [restored],
        reserved: undefined,
        condemned: undefined,
      });

      const { stdout } = await command('restore', 'diff', 'acme', '--database', restored);
      expect(JSON.parse(stdout)).to.include({ tenant: 'acme', database: restored });

      expect(restored).not.to.equal(begun);
      expect(await exists(restored)).to.equal(true);
      expect(await exists(begun)).to.equal(false);

      await run('databases', 'drop', 'acme', restored, '--yes');
      expect(await exists(restored)).to.equal(false);
      expect(await checks()).to.deep.equal([]);
    });
  }

  for (const step of pausedLost) {
    it(`a restore of a lost database that was paused before the step ${step} changes nothing of what another one has restored`, async () => {
      const { current: [lost = ''] = [] } = await databases();
      await withConnection(postgresUrl(), client =>
        client.query(`drop database "${lost}" with (force)`),
      );

      const goOn = await pause('lost', step);
      if (step === 'serve') {
        // The paused run has opened the restored database: it is not lost any more.
        await run('databases', 'prune', 'acme');
      } else {
        await run('restore', 'acme', '--lost');
      }

      const Title = `lost before ${step}`;
      expect(await post(Title)).to.equal(201);

      const { code, stderr } = await goOn();
      expect(code, stderr).not.to.equal(0);
      expect(await titles()).to.include.members(['restored', Title]);
      expect(await post(`after ${step}`)).to.equal(201);
      expect(await checks()).to.deep.equal([]);
    });
  }

  for (const step of purged) {
    it(`a restore beside that was paused before the step ${step} while its tenant was purged leaves nothing of the tenant`, async () => {
      const slug = `purged-${step}`;
      const { code, stderr } = await command(
        'provision',
        slug,
        '--name',
        slug,
        '--admin-email',
        `a@${slug}.test`,
      );
      expect(code, stderr).to.equal(0);

      await run('backup', 'run', slug);
      const goOn = await pause('beside', step, slug);
      const names = (await databases(slug)).reserved ?? [];
      expect(names).to.have.length(1);

      await run('delete', slug, '--yes');
      await run('purge', slug, '--yes');

      expect((await goOn()).code).not.to.equal(0);
      for (const name of names) expect(await exists(name)).to.equal(false);
      expect(await titles()).to.include('restored');
      expect(await checks()).to.deep.equal([]);
    });
  }
});
