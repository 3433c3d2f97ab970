import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

describe('a control database of an earlier time than the databases of its tenants', () => {
  let server: DedicatedServer;
  let folder: string;
  let environment: Record<string, string>;
  let own: string;
  let restored: string;

  const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', [...args, '--json'], environment);
  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await tenant(...args);
    expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
    return stdout;
  };
  /** Loses the control database, and restores its newest archive. */
  const restoreControl = async (): Promise<void> => {
    await server.sql('drop database office with (force)');
    const { code, stderr } = await runCommand('scripts/control.ts', ['restore'], environment);
    expect(code, stderr).to.equal(0);
  };
  const current = async (): Promise<string | undefined> =>
    (await server.control<{ name: string }>(`select database_name as name from tenants where slug = 'acme'`))[0]?.name;
  const add = (code: string, database: string) =>
    server.sql(`insert into currencies (code, name) values ('${code}', '${code}')`, database);
  const codes = async (database: string): Promise<string[]> =>
    (await server.sql<{ code: string }>('select code from currencies order by id', database)).map(({ code }) => code);
  const findings = async (): Promise<string[]> =>
    JSON.parse((await tenant('doctor')).stdout)
      .findings.filter(({ tenant: slug }: { tenant: string | null }) => slug === 'acme')
      .map(({ check, remedy }: { check: string; remedy: string }) => `${check}: ${remedy}`);

  before(async () => {
    server = await createDedicatedServer();
    folder = await makeServerFolder('archives');
    environment = { ...server.environment, BACKUP_TARGET: folder };
    own = (await server.provision('acme')).tenant.databaseName;
    await add('EUR', own);
    await run('backup', 'init');
    await run('backup', 'run', '--all');
    restored = JSON.parse(await run('restore', 'acme', '--archive', 'latest')).database;
  });
  after(async () => {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  });

  it('from before a swap: the former database lets nobody in, and a swap puts the one in place that has the later data', async () => {
    await run('backup', 'run', '--all');
    await run('restore', 'swap', 'acme', '--yes');
    await add('CHF', restored);
    await restoreControl();
    expect(await current()).to.equal(own);
    const found = await findings();
    expect(found.filter(text => text.startsWith('wrong_identity'))).to.deep.equal([
      'wrong_identity: Put that one in place: npx backoffice databases acme; npx backoffice restore swap acme, or restore back acme',
    ]);
    await run('restore', 'swap', 'acme', '--yes');
    expect([await current(), await codes(restored)]).to.deep.equal([restored, ['EUR', 'CHF']]);
    expect(await findings()).to.deep.equal([]);
  });

  it('from after a swap that was undone since: back puts the one in place that has the later data', async () => {
    await run('backup', 'run', '--all');
    await run('restore', 'back', 'acme', '--yes');
    await add('NOK', own);
    await restoreControl();
    expect(await current()).to.equal(restored);
    await run('restore', 'back', 'acme', '--yes');
    expect([await current(), await codes(own)]).to.deep.equal([own, ['EUR', 'NOK']]);
    expect(await findings()).to.deep.equal([]);
  });

  it('no command drops the database that has the later data, whatever the earlier time says of it', async () => {
    const states = [`state = 'reserved'`, `keep_until = now() - interval '1 hour'`, `state = 'condemned'`];
    for (const state of states) {
      await server.control(`update tenant_databases set ${state} where database_name = '${restored}'`);
      await run('backup', 'run', '--all');
      await server.control(
        `update tenant_databases set state = 'filled', keep_until = null where database_name = '${restored}'`,
      );
      await run('restore', 'swap', 'acme', '--yes');
      await restoreControl();
      await run('databases', 'prune', 'acme');
      const { code, stderr } = await tenant('databases', 'drop', 'acme', restored, '--yes');
      expect([code, stderr.includes(`Database ${restored} on server default was not dropped`)], stderr).to.deep.equal([
        1,
        true,
      ]);
      expect(await codes(restored)).to.deep.equal(['EUR', 'CHF']);
      await server.control(`update tenant_databases set state = 'filled' where database_name = '${restored}'`);
      await run('restore', 'swap', 'acme', '--yes');
      await run('restore', 'back', 'acme', '--yes');
    }
    expect(await findings()).to.deep.equal([]);
  });
});
