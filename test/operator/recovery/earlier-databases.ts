import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { startScript } from '../../support/command-line.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { killedRestore } from '../../support/paused-run.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

/** The name of the database with the later data, as the restored control database has it. */
export const restoredStates = [
  `state = 'filled'`,
  `state = 'reserved'`,
  `keep_until = now() - interval '1 hour'`,
  `state = 'condemned'`,
];

/**
 * Adds the tests of restores of the control database to before a swap.
 * @param states some of `restoredStates`; each takes some seconds
 * @param isDrill false: without the other cases of a restore of the control database
 */
export function testEarlierDatabases(states: readonly string[], isDrill: boolean): void {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  let own: string;
  let restored: string;
  let number = 0;

  const tenant = (...args: string[]) =>
    runCommand('scripts/tenant.ts', [...args, '--json'], environment);
  const run = (...args: string[]) => succeed(environment, 'tenant', [...args, '--json']);
  /** Loses the control database, and restores its newest archive. */
  const restoreControl = async (): Promise<void> => {
    await server.sql('drop database office with (force)');
    await succeed(environment, 'control', ['restore']);
  };
  const current = async (): Promise<string | undefined> =>
    (
      await server.control<{ name: string }>(
        `select database_name as name from tenants where slug = 'acme'`,
      )
    )[0]?.name;
  const add = (code: string, database: string) =>
    server.sql(`insert into currencies (code, name) values ('${code}', '${code}')`, database);
  const codes = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(
      ({ code }) => code,
    );
  const findings = async (): Promise<string[]> =>
    JSON.parse((await tenant('doctor')).stdout)
      .findings.filter(({ tenant: slug }: { tenant: string | null }) => slug === 'acme')
      .map(({ check, remedy }: { check: string; remedy: string }) => `${check}: ${remedy}`);

  /**
   * The data of the current database are older than those of another one, which lets the tenant
   * in.
   */
  const expectRefusedPrune = async (kind: 'swap' | 'back', database: string): Promise<void> => {
    const { code, stderr } = await tenant('databases', 'prune', 'acme');
    expect(code).to.equal(1);
    expect(stderr).to.include(`${database} of acme may have newer data`);
    expect(stderr).to.include(`bin/backoffice restore ${kind} acme --database ${database}`);
  };

  before(async () => {
    environment = { ...server.environment, ...(await backupSettings(folder)) };
    own = (await server.provision('acme')).tenant.databaseName;
    await add('EUR', own);
    await backUp(environment);
    restored = JSON.parse(await run('restore', 'acme', '--archive', 'latest')).database;
  });

  for (const state of states) {
    it(`after a restore to before a swap, no command drops the database with the later data, with ${state}, and a swap puts it in place`, async () => {
      await server.control(
        `update tenant_databases set ${state} where database_name = '${restored}'`,
      );
      await run('backup', 'run', '--all');
      await server.control(
        `update tenant_databases set state = 'filled', keep_until = null where database_name = '${restored}'`,
      );
      await run('restore', 'swap', 'acme', '--yes');

      const later = [...(await codes(restored)), `C${++number}`];
      await add(`C${number}`, restored);
      await restoreControl();

      expect(await current()).to.equal(own);
      const found = await findings();
      expect(found).to.include(
        'unfinished_switch: Let it serve the tenant: bin/backoffice databases prune acme',
      );
      expect(found.join()).not.to.include('wrong_identity');

      await expectRefusedPrune('swap', restored);
      const { code, stderr } = await tenant('databases', 'drop', 'acme', restored, '--yes');
      expect(code, stderr).to.equal(1);
      expect(stderr).to.include(`Database ${restored} on server default was not dropped`);

      await run('restore', 'swap', 'acme', '--yes');
      expect(await current()).to.equal(restored);
      expect(await codes(restored)).to.deep.equal(later);
      expect(await findings()).to.deep.equal([]);

      if (isDrill) await run('restore', 'back', 'acme', '--yes');
    });
  }

  if (!isDrill) return;

  it('after a restore to between a swap and its undoing, back puts the later data in place', async () => {
    await run('restore', 'swap', 'acme', '--yes');
    await run('backup', 'run', '--all');
    await run('restore', 'back', 'acme', '--yes');
    await add('NOK', own);
    await restoreControl();
    expect(await current()).to.equal(restored);
    await expectRefusedPrune('back', own);
    await run('restore', 'back', 'acme', '--yes');
    expect([await current(), await codes(own)]).to.deep.equal([own, ['EUR', 'NOK']]);
    expect(await findings()).to.deep.equal([]);
  });

  it('after a restore to before a swap that was killed behind its fence, databases prune of the tenant opens its closed database', async () => {
    await run('backup', 'run', '--all');
    const { signal, stderr } = await startScript(
      killedRestore,
      ['swap', 'acme', 'exchange'],
      environment,
    ).ended;
    expect(signal, stderr).to.equal('SIGKILL');

    await restoreControl();
    expect(await server.control('select from tenant_fences')).to.deep.equal([]);
    const found = await findings();
    expect(found).to.include(
      'unfinished_switch: Let it serve the tenant: bin/backoffice databases prune acme',
    );

    const [planned, ...others] = JSON.parse(await run('databases', 'prune', 'acme', '--dry-run'));
    expect(planned).to.include({
      slug: 'acme',
      server: 'default',
      database: own,
      state: 'current',
      action: 'serve',
    });
    expect(others).to.deep.equal([]);

    await run('databases', 'prune');
    expect(await findings(), 'without the slug').to.deep.equal(found);

    for (let time = 1; time <= 2; time++) await run('databases', 'prune', 'acme');
    expect(await findings()).to.deep.equal([]);
    expect(await current()).to.equal(own);
    expect(await codes(own)).to.deep.equal(['EUR', 'NOK']);
  });
}
