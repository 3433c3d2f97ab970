import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, type Script, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';
import { createWorld } from '../../support/world.ts';

describe('the owner of a backup target', () => {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;

  const run = (script: Script, args: string[], settings: Record<string, string> = {}) =>
    runCommand(`scripts/${script}.ts`, args, { ...environment, ...settings });
  const runWell = (script: Script, ...args: string[]) => succeed(environment, script, args);
  const fail = async (script: Script, args: string[], settings: Record<string, string> = {}): Promise<string> => {
    const { code, stdout, stderr } = await run(script, args, settings);
    expect(code, `${args.join(' ')}: ${stdout}`).to.equal(1);
    return stderr + stdout;
  };
  /** Ends all connections to the control database, so that it can be copied or renamed. */
  const leaveControl = () =>
    server.sql(`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'office'`);
  const filesOf = async (): Promise<string[]> =>
    (await readdir(folder, { recursive: true, withFileTypes: true }))
      .filter(entry => entry.isFile())
      .map(entry => join(entry.parentPath, entry.name).slice(folder.length + 1))
      .sort();
  const keysOf = async () => (await filesOf()).filter(name => name.startsWith('keys/'));

  before(async () => {
    environment = { ...server.environment, BACKUP_TARGET: folder };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
  });

  it('a run writes nothing to a target that nobody has initialized, and makes no missing folder; a list says so', async () => {
    expect(await fail('tenant', ['backup', 'run', '--all'])).to.match(
      /^folder \S+ is no backup target yet, or is not mounted: .*: bin\/backoffice backup init\n$/,
    );
    expect(await filesOf()).to.deep.equal([]);
    const missing = join(folder, 'not-mounted');
    for (const command of ['init', 'run'])
      expect(
        await fail('tenant', ['backup', command, ...(command === 'run' ? ['--all'] : [])], { BACKUP_TARGET: missing }),
      ).to.match(/^The folder of BACKUP_TARGET does not exist: \S+\. Mount it, or make it: mkdir -m 700 -p \S+\n$/);
    expect(await fail('tenant', ['backup', 'list'])).to.match(
      /is no backup target yet, or is not mounted: .*: bin\/backoffice backup init\n$/,
    );
    expect(await readdir(folder)).to.deep.equal([]);
    await backUp(environment);
    expect(await keysOf()).to.have.length(3);
  });

  it('a run on a folder that is not mounted fails; on a target that has lost an archive the first run fails and the next succeeds', async () => {
    await rename(folder, `${folder}-mounted`);
    await mkdir(folder);
    expect(await fail('tenant', ['backup', 'run', '--all'])).to.match(/is not mounted: it has no file target\.json/);
    expect(await filesOf()).to.deep.equal([]);
    await rm(folder, { recursive: true });
    await rename(`${folder}-mounted`, folder);

    const archives = async () => (await filesOf()).filter(name => name.startsWith('tenants/'));
    const [archive = ''] = await archives();
    await rm(join(folder, archive));
    const printed = await fail('tenant', ['backup', 'run', '--all']);
    expect(printed).to.include(`The target has lost 1 archive: ${archive}`);
    expect(await runWell('tenant', 'backup', 'run', '--all')).to.match(/, 2 unchanged, 0 failed/);
    expect(await archives()).to.have.length(2);
  });

  it('a second installation is refused by name, and changes no file of the first', async () => {
    const other = await createWorld();
    try {
      const before = await filesOf();
      const [row] = await server.control<{ id: string }>('select id from installation');
      const settings = { ...other.environment, BACKUP_TARGET: folder };
      for (const args of [['run', '--all'], ['init'], ['prune'], ['list']]) {
        const refusal = await fail('tenant', ['backup', ...args], settings);
        expect(refusal).to.include(`has the archives of installation ${row?.id}, and this is another one`);
        expect(refusal, 'an installation with tenants is not lost').not.to.include('control restore');
      }
      expect(await filesOf()).to.deep.equal(before);
    } finally {
      await other.close();
    }
  });

  it('a copy of the control database is refused as soon as the other one has run, and takes over only when asked to', async () => {
    await leaveControl();
    await server.sql('create database office_copy template office');
    const { DATABASE_URL = '' } = environment;
    const copy = { DATABASE_URL: databaseUrl(DATABASE_URL, 'office_copy') };
    await runWell('tenant', 'backup', 'run', '--all');
    const before = await filesOf();
    expect(await fail('tenant', ['backup', 'run', '--all'], copy)).to.match(
      /^Another control database of this installation writes to .*: bin\/backoffice backup init\n$/,
    );
    expect(await fail('tenant', ['backup', 'prune'], copy)).to.match(/^Another control database of this installation/);
    const deleted = await run('tenant', ['delete', 'globex', '--yes'], copy);
    expect(deleted.code, deleted.stderr).to.equal(0);
    // A copy of an installation has databases of its own.
    await server.sql(
      `update tenants set database_name = 'office_none', role_name = 'office_none' where slug = 'globex';
       update tenant_databases d set database_name = 'office_none', role_name = 'office_none'
         from tenants t where t.id = tenant_id and slug = 'globex'`,
      'office_copy',
    );
    expect(await fail('tenant', ['purge', 'globex', '--yes'], copy)).to.match(
      /Another control database of this installation/,
    );
    expect(await filesOf(), 'neither a key nor an archive is removed').to.deep.equal(before);
    await server.sql('drop database office_copy with (force)');
    await leaveControl();
    await server.sql('create database office_copy template office');
    await runWell('tenant', 'backup', 'run', '--all');
    const taken = await run('tenant', ['backup', 'init'], copy);
    expect([taken.code, taken.stdout], taken.stderr).to.deep.equal([
      0,
      'Taken over: recorded 1 archive of another control database. Next: bin/backoffice backup run --all\n',
    ]);
    const again = await run('tenant', ['backup', 'run', '--all'], copy);
    expect(again.code, again.stdout + again.stderr).to.equal(0);
    expect(await fail('tenant', ['backup', 'run', '--all'])).to.match(/^Another control database of this installation/);
    await backUp(environment);
    await server.sql('drop database office_copy with (force)');
  });

  it('verify names a key that the target has lost, and the next run writes it again', async () => {
    const [key = ''] = (await keysOf()).filter(name => !name.startsWith('keys/control/'));
    await rm(join(folder, key));
    expect(await fail('tenant', ['backup', 'verify'])).to.include('the target has no key of it that MASTER_KEY opens');
    await runWell('tenant', 'backup', 'run', '--all');
    expect(await keysOf()).to.include(key);
    expect(await runWell('tenant', 'backup', 'verify')).to.match(/ 0 faulty\.\n$/);
  });

  it('archives that were completed after the newest archive of the control database are found by its restore, at another path and beside a damaged key too', async () => {
    const { DATABASE_URL = '' } = environment;
    const [acme, globex] = await server.control<{ guid: string; name: string }>(
      'select guid, database_name as name from tenants order by slug',
    );
    await server.sql(`insert into currencies (code, name) values ('CHF', 'Franc')`, acme?.name);
    const controlArchives = async () => (await filesOf()).filter(name => name.startsWith('control/'));
    const before = await Promise.all(
      (await controlArchives()).map(async name => ({ name, bytes: await readFile(join(folder, name)) })),
    );
    await runWell('tenant', 'backup', 'run', '--all');
    // As if the run had been killed before it archived the control database.
    for (const name of await controlArchives()) await rm(join(folder, name));
    for (const { name, bytes } of before) await writeFile(join(folder, name), bytes);
    const [key = ''] = (await keysOf()).filter(name => name.startsWith(`keys/${globex?.guid}/`));
    await writeFile(join(folder, key), '');
    await leaveControl();
    await server.sql('drop database office with (force)');
    const moved = `${folder}-moved`;
    await rename(folder, moved);
    const restored = await run('control', ['restore'], { BACKUP_TARGET: moved, DATABASE_URL });
    expect(restored.code, restored.stderr).to.equal(0);
    await server.sql(`drop database "${acme?.name}" with (force)`);
    const lost = await run('tenant', ['restore', 'acme', '--lost'], { BACKUP_TARGET: moved });
    expect(lost.code, lost.stderr).to.equal(0);
    const [now] = await server.control<{ name: string }>(
      `select database_name as name from tenants where slug = 'acme'`,
    );
    expect(await server.sql(`select code from currencies where code = 'CHF'`, now?.name)).to.have.length(1);
    await rename(moved, folder);
    await backUp(environment);
  });

  it('init refuses a folder that has none of the archives of the ledger, unless they are lost', async () => {
    await rename(folder, `${folder}-mounted`);
    await mkdir(folder);
    expect(await fail('tenant', ['backup', 'init'])).to.match(
      /has none of the \d+ archives that were written there: mount it\..*: bin\/backoffice backup init --lost\n$/,
    );
    expect(await filesOf()).to.deep.equal([]);
    await rm(folder, { recursive: true });
    await rename(`${folder}-mounted`, folder);
  });

  it('without the control database every command names its restore, no other database takes its place, no key is lost, and a file with an impossible time in its name is no archive', async () => {
    const before = await keysOf();
    const names = ['99999999T999999Z', '29990230T000000Z'].map(time => `control/${time}-${randomUUID()}.archive`);
    for (const name of names) await writeFile(join(folder, name), 'of somebody else');
    await leaveControl();
    await server.sql('alter database office rename to office_lost');
    const named = /bin\/backoffice control restore/;
    expect(await fail('tenant', ['list'])).to.match(named);
    expect(await fail('tenant', ['doctor'])).to.match(named);
    expect(await fail('control', ['migrate'])).to.match(named);
    expect(await server.sql(`select from pg_database where datname = 'office'`)).to.have.length(0);
    // Somebody makes a new one without the target, and the timer runs.
    const { BACKUP_TARGET: _, ...withoutTarget } = environment;
    expect((await runCommand('scripts/control.ts', ['migrate'], withoutTarget)).code).to.equal(0);
    expect(await fail('tenant', ['backup', 'run', '--all'])).to.match(named);
    expect(await fail('tenant', ['backup', 'init'])).to.match(named);
    expect(await fail('control', ['migrate'])).to.match(named);
    const doctor = await runWell('tenant', 'doctor', '--fix');
    expect(doctor).to.match(named);
    expect(doctor).not.to.match(/drop (database|role)/);
    expect(await keysOf()).to.deep.equal(before);
    const restored = await runWell('control', 'restore');
    for (const name of names) expect(restored).not.to.include(name);
    expect(await runWell('tenant', 'list', '--output', 'name')).to.equal('acme\nglobex\n');
    expect(await runWell('tenant', 'backup', 'init')).to.include('belongs to this installation already');
    await runWell('tenant', 'backup', 'run', '--all');
  });
});
