import { expect } from 'chai';
import { createFleetCounter } from '../../../src/control/fleet-counts.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { recordProof } from '../../../src/operator/backup/archive-rows.ts';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import { runSmall } from '../../support/small-archives.ts';
import { useEach, useFolder } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';

describe('metrics of backups', () => {
  const world = useEach(() => createWorld());
  const folder = useFolder();
  /** Returns the counts that the next scrape reads. */
  const counts = async () => {
    const read = createFleetCounter(world.control);
    return (await read())?.backup;
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

  it('the metrics count tenants without an archive, without a proof, and with a faulty newest archive', async () => {
    expect(await counts()).to.deep.include({
      lastSuccessAt: null,
      lastProvedAt: null,
      tenantsUnarchived: 2,
    });

    const target = await openTarget(readConfig({ BACKUP_TARGET: folder }).backup);
    await withBackupLock(world.installation.controlUrl, 'archives', control =>
      initTarget(control, target, { takeOver: false, isDryRun: false }),
    );
    await runSmall(world.installation, target);
    expect(await counts()).to.deep.include({
      tenantsUnarchived: 0,
      tenantsUnproved: 2,
      faultyArchives: 0,
    });
    expect((await counts())?.lastSuccessAt).to.be.closeTo(Date.now() / 1_000, 60);

    const record = async (slug: string, fault: string | null) => {
      const name = await newestOf(slug);
      await withConnection(world.installation.controlUrl, control =>
        recordProof(control, target, name, fault, 'proved'),
      );
    };
    await record('acme', null);
    await record('globex', 'a byte of it was changed');
    expect(await counts()).to.deep.include({ tenantsUnproved: 1, faultyArchives: 1 });
    expect((await counts())?.lastProvedAt).to.be.closeTo(Date.now() / 1_000, 60);

    const run = await runSmall(world.installation, target);
    expect(run.states, 'a faulty archive is replaced').to.include('globex: archived');
    expect(await counts()).to.deep.include({ faultyArchives: 0 });
  });

  it('a run that is in progress is counted from its start, and one that was killed is not', async () => {
    await controlSql(world, `insert into backup_runs default values`);
    const killed = await counts();

    const running = await withBackupLock(world.installation.controlUrl, 'archives', counts);

    expect(killed?.runningSince).to.equal(null);
    expect(running?.runningSince).to.be.closeTo(Date.now() / 1_000, 60);
  });

  it('archives that were not removed, and those of purged tenants that are left, are counted', async () => {
    expect(await counts()).to.deep.include({ notRemoved: 0, purgedLeft: 0 });
    await controlSql(
      world,
      `insert into backup_runs (state, finished_at, not_removed)
       values ('succeeded', now(), 7)`,
    );
    await controlSql(
      world,
      `insert into purged_tenants (id, guid, slug, name, database_name, created_at, archives)
       values (99, gen_random_uuid(), 'hooli', 'Hooli', 'none', now(), 'left')`,
    );

    expect(await counts()).to.deep.include({ notRemoved: 7, purgedLeft: 1 });
  });
});
