import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { useOwnDrills } from '../../support/own-drills.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant } from '../../support/world.ts';

describe('the order of drills', () => {
  useOwnDrills();
  const s3 = use(() => startS3Server('backups'));
  const world = use(async () =>
    createWorld({ ...s3.environment, ...(await backupSettings('s3://backups/office')) }),
  );
  const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  const run = () => succeed(world.environment, 'tenant', ['backup', 'run', '--all']);
  const write = (to: TestTenant) =>
    sql(to, `insert into currencies (code, name) select 'X' || count(*), 'X' from currencies`);
  /** Runs a drill of one tenant, and returns its slug. */
  const drill = async (): Promise<string> =>
    JSON.parse((await tenant('backup', 'drill', '--count', '1', '--json')).stdout).slug;

  before(() => backUp(world.environment));

  it('drills take the tenant whose last one is longest ago, also when every tenant has changed since', async () => {
    const drilled: string[] = [];
    for (let day = 0; day < 4; day++) {
      for (const each of [world.acme, world.globex]) await write(each);
      await run();
      drilled.push(await drill());
    }

    expect(new Set(drilled.slice(0, 2)), drilled.join(' ')).to.have.length(2);
    expect(drilled.slice(2)).to.deep.equal(drilled.slice(0, 2));
  });

  it('a tenant whose drills fail does not keep the others from theirs', async () => {
    const drilled: string[] = [];
    for (let day = 0; day < 3; day++) {
      await write(world.acme);
      await run();
      const [row] = await controlSql<{ name: string }>(
        world,
        'select name from archives where tenant_guid = ? order by archived_at desc limit 1',
        [world.acme.guid],
      );
      const key = `office/${row?.name}`;
      const bytes = Buffer.from(s3.store.objects.get(key) ?? '').fill(0, 300, 400);
      s3.store.objects.set(key, bytes);
      drilled.push(await drill());
    }

    expect(drilled).to.include.members(['acme', 'globex']);
  });
});
