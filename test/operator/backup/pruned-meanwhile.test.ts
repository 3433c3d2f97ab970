import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { useOwnDrills } from '../../support/own-drills.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';

describe('an archive that a run removes after it was chosen', () => {
  useOwnDrills();
  const s3 = use(() => startS3Server('backups'));
  const world = use(async () =>
    createWorld({ ...s3.environment, ...(await backupSettings('s3://backups/office')) }),
  );
  const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  let former: string;
  let newer: string;

  const newestOf = async (slug: string): Promise<string> => {
    const archives: { name: string }[] = JSON.parse(
      await succeed(world.environment, 'tenant', ['backup', 'list', slug, '--json']),
    );
    return archives[0]?.name ?? '';
  };

  before(async () => {
    await backUp(world.environment);
    former = await newestOf('globex');
    await sql(world.globex, `insert into currencies (code, name) values ('NOK', 'Krone')`);
    await succeed(world.environment, 'tenant', ['backup', 'run', '--all']);
    newer = await newestOf('globex');
    expect(newer).not.to.equal(former);
  });

  const setState = (name: string, state: string) =>
    controlSql(world, 'update archives set state = ? where name = ?', [state, name]);

  /**
   * Runs a command that finds the former archive to be the newest one of globex. At its first
   * reading of it, the target has the newer one in its place, as after a run beside the command
   * whose `BACKUP_KEEP` keeps the newest alone.
   */
  async function besideRun(...args: string[]) {
    const { objects } = s3.store;
    const keyOf = (name: string): string => `office/${name}`;
    const bytes = objects.get(keyOf(newer));
    const formerBytes = objects.get(keyOf(former));
    if (!bytes || !formerBytes) throw new Error('an archive is missing');
    objects.delete(keyOf(newer));

    await setState(newer, 'writing');
    s3.faultOf = async request => {
      if (request.startsWith('GET') && request.includes(former)) {
        await setState(newer, 'complete');
        await setState(former, 'removing');
        objects.delete(keyOf(former));
        objects.set(keyOf(newer), bytes);
      }
      return undefined;
    };

    try {
      return await tenant(...args);
    } finally {
      s3.faultOf = () => undefined;
      objects.set(keyOf(former), formerBytes);
      objects.set(keyOf(newer), bytes);
      for (const name of [former, newer]) await setState(name, 'complete');
    }
  }

  it('a drill proves the newest archive in its place, and records no fault', async () => {
    const { code, stdout, stderr } = await besideRun('backup', 'drill', '--json');

    expect(code, stdout + stderr).to.equal(0);
    const outcomes = stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line));
    const globex = outcomes.find(({ slug }) => slug === 'globex');
    expect(globex).to.include({ archive: newer, state: 'proved' });
    const proofs = await controlSql<{ name: string; fault: string | null }>(
      world,
      'select name, fault from archives where fault is not null',
      [],
    );
    expect(proofs).to.deep.equal([]);
  });

  it('a restore of the removed archive restores nothing, leaves no database, and says how to choose another archive', async () => {
    const databases = () =>
      controlSql(world, 'select database_name from tenant_databases order by id');
    const before = await databases();

    const { code, stderr } = await besideRun('restore', 'globex', '--archive', 'latest');

    expect(code).to.equal(1);
    expect(stderr)
      .to.include(`The archive ${former} of globex cannot be restored:`)
      .and.include('Nothing was restored.')
      .and.include('bin/backoffice backup list globex');
    expect(await databases()).to.deep.equal(before);
    await succeed(world.environment, 'tenant', ['restore', 'globex', '--archive', 'latest']);
  });
});
