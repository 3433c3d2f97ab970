import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { listArchives } from '../../../src/operator/backup/list-archives.ts';
import { removePurgedArchives } from '../../../src/operator/backup/purged-archives.ts';
import type { WriteArchive } from '../../../src/operator/backup/run-backup.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import { checkArchives, readArchiveFacts } from '../../../src/operator/doctor/check-archives.ts';
import { ArchiveFacts } from '../../support/archive-facts.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { recipients, runSmall, writeSmall } from '../../support/small-archives.ts';
import { use } from '../../support/use.ts';

describe('a purge and the archives of its tenant', () => {
  const server = use(createDedicatedServer);
  const facts = new ArchiveFacts(server);
  const s3 = use(() => startS3Server('backups', 2));
  let environment: Record<string, string>;
  let target: Target;
  let installation: Installation;

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
  const purge = async (slug: string, ...options: string[]) => {
    await run('delete', slug, '--yes');
    return run('purge', slug, '--yes', ...options);
  };
  const keysOf = (guid: string): string[] =>
    [...s3.store.objects.keys()].filter(key => key.includes(guid));
  const purged = async (slug: string) =>
    (
      await server.control<{ archives: string; left: string[]; error: string | null }>(
        `select archives, archives_left as left, archives_error as error from purged_tenants
          where slug = '${slug}' order by id desc limit 1`,
      )
    )[0];
  const problems = async (): Promise<string[]> => {
    const found = await withConnection(installation.controlUrl, readArchiveFacts);
    return checkArchives(found, 'default')
      .filter(({ check }) => check === 'purged_archives_left')
      .map(({ problem }) => problem);
  };

  before(async () => {
    environment = { ...server.environment, ...s3.environment };
    installation = await openInstallation(readConfig(server.environment));
    target = await openTarget(readConfig(s3.environment).backup);
    for (const slug of ['acme', 'globex', 'initech', 'umbrella', 'soylent']) {
      await server.provision(slug);
    }
    await withBackupLock(installation.controlUrl, 'archives', control =>
      initTarget(control, target, { takeOver: false, isDryRun: false }),
    );
    await runSmall(installation, target);
  });
  after(() => installation.close());

  it('a purge removes databases and rows, then every archive with its versions, and says so', async () => {
    const guid = await facts.guidOf('acme');
    expect(keysOf(guid)).to.have.length(1);

    const { code, stdout, stderr } = await purge('acme');

    expect(code, stderr + stdout).to.equal(0);
    expect(stdout).to.include(
      'acme is purged, and so is what s3://backups/some/prefix had of it: 1 archive.',
    );
    expect(keysOf(guid)).to.deep.equal([]);
    expect(await purged('acme')).to.deep.equal({ archives: 'removed', left: [], error: null });
    expect((await runSmall(installation, target)).failed).to.equal(0);
  });

  it('archives that the store refuses to remove are named by the purge and by doctor, until a run has removed them', async () => {
    const guid = await facts.guidOf('globex');
    const [key = ''] = keysOf(guid);
    s3.faultOf = request =>
      request.startsWith('DELETE')
        ? { kind: 'status', status: 403, code: 'AccessDenied' }
        : undefined;

    const { code, stdout } = await purge('globex');

    expect(code).to.equal(1);
    const name = key.slice('some/prefix/'.length);
    expect(stdout)
      .to.include('globex is purged, but its archives are not all removed')
      .and.include(name);
    expect(await purged('globex')).to.deep.include({ archives: 'left', left: [name] });
    expect(await problems()).to.have.length(1);
    expect((await problems())[0])
      .to.include(`globex (${guid}) was purged at`)
      .and.include(name);

    const refused = await runSmall(installation, target);
    expect(refused.failed).to.equal(0);
    expect(refused.notRemoved.map(({ name: left }) => left)).to.include(name);
    expect(keysOf(guid)).to.deep.equal([key]);

    s3.faultOf = () => undefined;
    const later = await runSmall(installation, target);
    expect(later.notRemoved).to.deep.equal([]);
    expect(keysOf(guid)).to.deep.equal([]);
    expect(await purged('globex')).to.deep.equal({ archives: 'removed', left: [], error: null });
    expect(await problems()).to.deep.equal([]);
  });

  it('a purge whose store is away ends in the control database, and is run again for the archives', async () => {
    const guid = await facts.guidOf('initech');
    s3.faultOf = () => ({ kind: 'status', status: 403, code: 'InvalidAccessKeyId' });
    const failed = await purge('initech');
    expect(failed.code).to.equal(1);
    expect(failed.stdout).to.include('nobody knows what s3://backups/some/prefix still has');
    expect(await purged('initech')).to.deep.include({ archives: 'left', left: [] });
    expect(await problems()).to.have.length(1);

    s3.faultOf = () => undefined;
    const again = await run('purge', 'initech', '--yes');

    expect(again.code, again.stderr + again.stdout).to.equal(0);
    expect(keysOf(guid)).to.deep.equal([]);
    expect((await purged('initech'))?.archives).to.equal('removed');
  });

  it('archives that the operator keeps stay through runs and prunes, are listed as purged, and are no finding', async () => {
    const guid = await facts.guidOf('umbrella');
    const keys = keysOf(guid);

    const { code, stdout } = await purge('umbrella', '--keep-archives');
    expect(code).to.equal(0);
    expect(stdout).to.include('Its archives stay in s3://backups/some/prefix, as you wanted.');
    const none = { allMs: 0, hours: 0, days: 0, weeks: 0, months: 0 };
    await runSmall(installation, target, { keep: none });

    expect(keysOf(guid)).to.deep.equal(keys);
    const listed = await listArchives(installation, target, guid, recipients);
    expect(listed.map(({ slug, owner }) => ({ slug, owner }))).to.deep.equal([
      { slug: 'umbrella', owner: 'purged' },
    ]);
    expect(await problems()).to.deep.equal([]);
  });

  it('a purge beside a run waits for the archive of its tenant alone, and nothing of the tenant is left after both', async () => {
    const guid = await facts.guidOf('soylent');
    await server.sql(
      `insert into currencies (code, name) values ('EUR', 'Euro')`,
      await server.databaseOf('soylent'),
    );
    await run('delete', 'soylent', '--yes');
    const writing = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    const slow: WriteArchive = async (order, store) => {
      if (order.tenant) {
        writing.resolve();
        await written.promise;
      }
      return writeSmall(order, store);
    };

    const running = runSmall(installation, target, {}, slow);
    await writing.promise;
    const purging = run('purge', 'soylent', '--yes');
    const isEarly = await Promise.race([
      purging.then(() => true),
      server.sql('select pg_sleep(1.5)').then(() => false),
    ]);
    expect(isEarly, 'it waits').to.equal(false);
    written.resolve();
    const [outcome, { code, stdout, stderr }] = await Promise.all([running, purging]);

    expect(outcome.failed).to.equal(0);
    expect(code, stdout + stderr).to.equal(0);
    expect(keysOf(guid)).to.deep.equal([]);
    const { states } = await runSmall(installation, target);
    expect(states).to.include('null: archived');
    expect(states.join()).not.to.include('soylent');
  });

  it('a copy of the control database purges no archive of the other one', async () => {
    await server.provision('hooli');
    await runSmall(installation, target);
    const guid = await facts.guidOf('hooli');
    const keys = keysOf(guid);
    const [own] = await server.control<{ writer: string }>(
      'select target_writer as writer from installation',
    );
    await server.control(
      'update installation set target_writer = gen_random_uuid(), next_target_writer = null',
    );

    const outcome = await removePurgedArchives(installation, target, guid);

    await server.control(`update installation set target_writer = '${own?.writer}'`);

    expect(outcome.state).to.equal('left');
    expect(outcome.error).to.include('Another control database of this installation writes to');
    expect(keysOf(guid)).to.deep.equal(keys);
  });
});
