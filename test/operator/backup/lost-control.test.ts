import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { useArchivedServer } from '../../support/archived-server.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { backUp, type Script, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('a target with the archives of another control database', () => {
  const { server, folder, settings } = useArchivedServer();
  const other = use(createDedicatedServer);
  let environment: Record<string, string>;

  const runWell = (script: Script, ...args: string[]) => succeed(environment, script, args);
  const fail = async (script: Script, args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runCommand(`scripts/${script}.ts`, args, environment);
    expect(code, `${args.join(' ')}: ${stdout}`).to.equal(1);
    return stderr + stdout;
  };
  const filesOf = async (): Promise<string[]> =>
    (await readdir(folder, { recursive: true, withFileTypes: true }))
      .filter(entry => entry.isFile())
      .map(entry => join(entry.parentPath, entry.name))
      .sort();

  before(() => {
    environment = settings();
  });

  it('a second installation in one target neither lists, changes nor removes the archives of the first', async () => {
    await other.provision('initech');
    const second = { ...other.environment, ...(await backupSettings(folder)) };
    const before = await filesOf();

    await backUp(second);
    await succeed(second, 'tenant', ['backup', 'prune']);

    const [{ id } = { id: '' }] = await other.control<{ id: string }>(
      'select id from installation',
    );
    const after = await filesOf();
    expect(after.filter(name => !name.startsWith(join(folder, id)))).to.deep.equal(before);
    expect(after.length).to.be.greaterThan(before.length);
    const listed = JSON.parse(await succeed(second, 'tenant', ['backup', 'list', '--json']));
    expect(listed.map(({ slug }: { slug: string | null }) => slug)).to.have.members([
      'initech',
      null,
    ]);
    await runWell('tenant', 'backup', 'drill');
  });

  it('no empty control database takes the place of a lost one in its target: every command names the restore', async () => {
    const before = await filesOf();
    const [{ id } = { id: '' }] = await server.control<{ id: string }>(
      'select id from installation',
    );
    await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'office'`,
    );
    await server.sql('alter database office rename to office_lost');
    const named = /bin\/backoffice control restore/;
    expect(await fail('tenant', ['list'])).to.match(named);
    expect(await fail('tenant', ['doctor'])).to.match(named);
    expect(await fail('control', ['migrate'])).to.match(named);
    expect(await server.sql(`select from pg_database where datname = 'office'`)).to.have.length(0);

    // Somebody makes a new one without the target.
    const { BACKUP_TARGET: _, ...withoutTarget } = environment;
    await succeed(withoutTarget, 'control', ['migrate']);
    expect(await fail('tenant', ['backup', 'run', '--all'])).to.include('backup init');
    for (const options of [[], ['--take-over'], ['--dry-run']]) {
      expect(await fail('tenant', ['backup', 'init', ...options])).to.match(named);
    }
    expect(await fail('control', ['migrate'])).to.match(named);
    expect(await filesOf()).to.deep.equal(before);

    await runWell('control', 'restore', '--installation', id);
    expect(await runWell('tenant', 'list', '--output', 'name')).to.equal('acme\nglobex\n');
    await runWell('tenant', 'backup', 'run', '--all');
  });
});
