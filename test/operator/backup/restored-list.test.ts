import { cp, rm } from 'node:fs/promises';
import { expect } from 'chai';
import { archivesIn } from '../../support/archive-facts.ts';
import { useArchivedServer } from '../../support/archived-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';

const newerRuns = 3;

describe('the list of archives after a loss of rows', () => {
  const { server, folder, target, facts, settings } = useArchivedServer();
  /** The settings of the recovery host, and those of a host without an identity. */
  let recovery: Record<string, string>;
  let timer: Record<string, string>;

  const on = (environment: Record<string, string>, ...args: string[]) =>
    succeed(environment, 'tenant', args);
  const newestIn = (names: readonly string[], guid: string): string | undefined =>
    names
      .filter(name => name.includes(guid))
      .sort()
      .at(-1);
  const countIn = async (database: string): Promise<number> =>
    (
      await server.sql<{ count: number }>('select count(*)::int as count from currencies', database)
    )[0]?.count ?? 0;
  /** Replaces the control database by a copy of an earlier time. */
  const goBackTo = async (copy: string): Promise<void> => {
    await server.sql('drop database office with (force)');
    await server.sql(`create database office template ${copy}`);
  };
  const copyControl = async (copy: string): Promise<void> => {
    await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'office'`,
    );
    await server.sql(`create database ${copy} template office`);
  };

  before(() => {
    recovery = settings();
    const { BACKUP_IDENTITY_FILE: _, ...others } = recovery;
    timer = others;
  });
  // Whatever the test before it has left, the list has every archive of the target as complete,
  // and none as proved: a prune keeps the newest proved one of a tenant, too.
  beforeEach(async () => {
    await on(timer, 'backup', 'init', '--take-over');
    await on(recovery, 'backup', 'recognise');
    await server.control('update archives set proved_at = null');
    await on(timer, 'backup', 'run', '--all');
  });

  /**
   * Archives acme and the control database some times, and restores the control database from
   * before these archives.
   * @returns the archive of the control database from which it was restored
   */
  async function loseNewerRuns(): Promise<string> {
    const former = newestIn(await archivesIn(target), '/control/') ?? '';
    for (let run = 0; run < newerRuns; run++) {
      await facts.write('acme');
      await on(timer, 'backup', 'run', '--all');
    }
    await server.sql('drop database office with (force)');

    await succeed(recovery, 'control', ['restore', '--archive', former]);

    return former;
  }

  it('a control database from before newer archives lists them as unproved, within the run of no tenant, and a restore takes the newest whose code is right', async () => {
    const former = await loseNewerRuns();
    const newest = newestIn(await archivesIn(target), await facts.guidOf('acme'));

    expect(await facts.rowsOf('complete')).to.include(former);
    expect(await facts.rowsOf('writing')).to.deep.equal([]);
    expect(await facts.rowsOf('unproved')).to.have.length(2 * newerRuns);
    const before = await archivesIn(target);
    await on(timer, 'backup', 'init', '--take-over');
    await on(timer, 'backup', 'prune');
    expect(await archivesIn(target), 'no object that opens is removed').to.have.members(before);

    const restored = JSON.parse(
      await on(recovery, 'restore', 'acme', '--archive', 'latest', '--json'),
    );
    expect(restored.restoredFrom).to.equal(`archive ${newest}`);
    expect(await countIn(restored.database)).to.equal(
      await countIn(await server.databaseOf('acme')),
    );
    expect(await facts.rowsOf('complete')).to.include(newest);
  });

  it('a drill opens unproved archives, and those that it proves count', async () => {
    await loseNewerRuns();
    const guid = await facts.guidOf('acme');
    const unproved = (await facts.rowsOf('unproved')).filter(name => name.includes(guid));
    expect(unproved).to.have.length(newerRuns);

    await on(recovery, 'backup', 'drill');

    const proved = await server.control<{ name: string }>(
      `select name from archives where state = 'complete' and proved_at is not null and tenant_guid = '${guid}'`,
    );
    expect(proved.map(({ name }) => name)).to.include(newestIn(unproved, guid));
  });

  it('backup recognise makes every archive of the lost time complete, and runs then prune them as others', async () => {
    await loseNewerRuns();
    expect(await facts.rowsOf('unproved')).to.have.length(2 * newerRuns);

    await on(timer, 'backup', 'init', '--take-over');
    await on(recovery, 'backup', 'recognise');

    expect(await facts.rowsOf('unproved')).to.deep.equal([]);
    expect(await facts.rowsOf('complete')).to.have.members(await archivesIn(target));
    await on({ ...timer, BACKUP_KEEP: '1m' }, 'backup', 'prune');
    expect(await archivesIn(target)).to.have.length(3);
    expect(await facts.rowsOf('complete')).to.have.members(await archivesIn(target));
  });

  it('after a failover without its last run no archive is removed, doctor names what it does not know, and recognise counts it', async () => {
    await copyControl('office_before');
    await facts.write('acme');
    await on(timer, 'backup', 'run', '--all');
    const lost = newestIn(await archivesIn(target), await facts.guidOf('acme'));
    const before = await archivesIn(target);
    await goBackTo('office_before');
    const refused = await runCommand('scripts/tenant.ts', ['backup', 'run', '--all'], timer);
    expect(refused.stderr).to.include('backup init --take-over');

    await on(timer, 'backup', 'init', '--take-over');
    await on({ ...timer, BACKUP_KEEP: '1m' }, 'backup', 'run', '--all');

    const unknown = before.filter(name => name === lost || name.includes('/control/'));
    expect(await archivesIn(target)).to.include(lost);
    const { stdout } = await runCommand('scripts/tenant.ts', ['doctor', '--json'], timer);
    const strays = JSON.parse(stdout).findings.filter(
      ({ check }: { check: string }) => check === 'stray_objects',
    );
    expect(strays, unknown.join(' ')).to.have.length(2);

    await on(recovery, 'backup', 'recognise', 'acme');
    expect(await facts.rowsOf('complete')).to.include(lost);
  });

  it('a control database that is restored from a copy of its target under another path has the list there', async () => {
    const moved = `${folder}-moved`;
    const there = { ...recovery, BACKUP_TARGET: moved };
    await on(timer, 'backup', 'run', '--all');
    await cp(folder, moved, { recursive: true, preserveTimestamps: true });
    await copyControl('office_elsewhere');
    await server.sql('drop database office with (force)');

    await succeed(there, 'control', ['restore']);

    const targets = await server.control<{ target: string }>(
      `select distinct target from archives where state = 'complete'`,
    );
    expect(targets).to.deep.equal([{ target: `folder ${moved}` }]);
    await on(there, 'backup', 'drill');
    await goBackTo('office_elsewhere');
    await rm(moved, { recursive: true });
  });

  it('after a control database was recovered in the middle of a run, the run after it removes no object that opens', async () => {
    await facts.write('acme');
    await on(timer, 'backup', 'run', '--all');
    const last = newestIn(await archivesIn(target), await facts.guidOf('acme'));
    // The state of the middle of that run, as a recovered server has it.
    await server.control(
      `update archives set state = 'writing', bytes = null, sha256 = null, unpacked_bytes = null where name = '${last}'`,
    );
    await succeed(timer, 'control', ['after-restore', '--yes']);
    expect(await facts.rowsOf('unproved')).to.deep.equal([last]);

    await on({ ...timer, BACKUP_KEEP: '1m' }, 'backup', 'run', '--all');

    expect(await archivesIn(target)).to.include(last);
    await on(recovery, 'backup', 'recognise');
    expect(await facts.rowsOf('complete')).to.include(last);
    expect(await facts.rowsOf('unproved')).to.deep.equal([]);
  });
});
