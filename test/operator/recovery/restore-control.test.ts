import { randomBytes } from 'node:crypto';
import { cp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder, useServerFolder } from '../../support/server-folder.ts';
import { backUp, type Script, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';
import { createWorld } from '../../support/world.ts';

describe('restore of the control database', () => {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  /** The first archive of the control database. */
  let first: string;
  let archive: Buffer;

  const run = (script: Script, ...args: string[]) => succeed(environment, script, [...args, '--json']);
  const restore = async (...args: string[]) =>
    JSON.parse((await run('control', 'restore', ...args)).split('\n')[0] ?? '');
  const dropControl = () => server.sql('drop database office with (force)');
  const tenants = async () =>
    (await server.control<{ slug: string; status: string }>('select slug, status from tenants order by slug')).map(
      ({ slug, status }) => `${slug} ${status}`,
    );

  before(async () => {
    environment = { ...server.environment, BACKUP_TARGET: folder };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    await backUp(environment);
    [first = ''] = JSON.parse(await run('tenant', 'backup', 'list'))
      .filter(({ slug }: { slug: string | null }) => slug === null)
      .map(({ file }: { file: string }) => file);
    archive = await readFile(join(folder, first));
  });

  it('while a restore of the control database has not ended, no command fills it, and doctor names what is left', async () => {
    const failure = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await runCommand('scripts/tenant.ts', args, environment);
      expect(code, args.join(' ')).to.equal(1);
      return stderr;
    };
    const unfinished =
      /^A restore of the control database has begun, .* "office_restoring"\. .*: npx backoffice control restore\n$/;
    await run('tenant', 'backup', 'run', '--all');
    await dropControl();
    await server.sql('create database office_restoring');
    expect(await failure('list')).to.match(unfinished);
    const { BACKUP_TARGET: _, ...withoutTarget } = environment;
    expect((await runCommand('scripts/control.ts', ['migrate'], withoutTarget)).code).to.equal(0);
    expect(await failure('provision', 'initech', '--name', 'I', '--admin-email', 'i@initech.test')).to.match(
      unfinished,
    );
    const { file } = await restore();
    expect(await tenants()).to.deep.equal(['acme active', 'globex active']);

    await server.sql('create database office_restoring');
    await server.control(`comment on table tenants is 'restored from ${file}'`);
    const findings = async (): Promise<{ remedy: string }[]> => {
      const { stdout } = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
      return JSON.parse(stdout).findings.filter(
        ({ check }: { check: string }) => check === 'unfinished_control_restore',
      );
    };
    expect((await findings()).map(({ remedy }) => remedy)).to.deep.equal([
      'If the control database in use is the right one, drop the other: drop database "office_restoring";',
      `Run it again, with --all if lost tenants are to be restored: npx backoffice control restore --archive ${file}`,
    ]);
    await writeFile(join(folder, first), archive);
    const other = await runCommand('scripts/control.ts', ['restore', '--archive', first], environment);
    expect([other.code, other.stderr.includes(`--archive ${file}`)]).to.deep.equal([1, true]);
    await rm(join(folder, first));
    await run('control', 'restore', '--archive', file);
    await server.sql('drop database office_restoring');
    expect(await findings()).to.deep.equal([]);
  });

  it('a tenant whose purge is marked in the target does not come back, with none of its databases', async () => {
    await run('tenant', 'restore', 'globex', '--archive', 'latest');
    await run('tenant', 'backup', 'run', '--all');
    const databases = await server.control<{ name: string }>(
      `select d.database_name as name from tenant_databases d join tenants t on t.id = tenant_id where slug = 'globex'`,
    );
    expect(databases).to.have.length(2);
    await run('tenant', 'delete', 'globex', '--yes');
    await run('tenant', 'purge', 'globex', '--yes');
    await dropControl();
    const { purged } = await restore();
    expect(purged).to.deep.equal({ removed: ['globex'], withheld: [] });
    expect(await tenants()).to.deep.equal(['acme active']);
    expect(await server.control(`select email from users where email like '%globex%'`)).to.deep.equal([]);
    expect(await server.control('select slug from purged_tenants')).to.deep.equal([{ slug: 'globex' }]);
    const left = `any ('{${databases.map(({ name }) => name).join(',')}}')`;
    expect(await server.control(`select from tenant_databases where database_name = ${left}`)).to.deep.equal([]);
    expect(await server.sql(`select from pg_database where datname = ${left}`)).to.deep.equal([]);
    const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    expect(
      JSON.parse(doctor.stdout).findings.filter(({ severity }: { severity: string }) => severity === 'error'),
    ).to.deep.equal([]);
  });

  it('a forged mark of a purge takes no tenant away: it is deleted, and can be brought back', async () => {
    await run('tenant', 'backup', 'run', '--all');
    const [acme] = await server.control<{ guid: string }>(`select guid from tenants where slug = 'acme'`);
    const file = join(folder, `purged/${acme?.guid}.json`);
    await mkdir(join(folder, 'purged'), { recursive: true });
    await writeFile(file, JSON.stringify({ format: 1, tenant: acme?.guid, code: randomBytes(32).toString('base64') }));
    await dropControl();
    const { purged } = await restore();
    await rm(file);
    expect(purged).to.deep.equal({ removed: [], withheld: ['acme'] });
    expect(await tenants()).to.deep.equal(['acme deleted']);
    await run('tenant', 'restore', 'acme');
    expect(await tenants()).to.deep.equal(['acme active']);
  });

  it('keys of another installation, and another master key, open no archive: nothing is restored, and the message says which', async () => {
    await run('tenant', 'backup', 'run', '--all');
    const keys = join(folder, 'keys/control');
    const own = join(folder, 'own-keys');
    const other = await makeServerFolder('other');
    const installation = await createWorld();
    const opensNone =
      /^MASTER_KEY opens no archive of the control database in folder .*: set the master key of the lost installation\.\n$/;
    await dropControl();
    const failure = async (settings: Record<string, string> = {}): Promise<string> => {
      const { code, stderr } = await runCommand('scripts/control.ts', ['restore'], { ...environment, ...settings });
      expect(code).to.equal(1);
      expect(await server.sql(`select from pg_database where datname = 'office'`)).to.have.length(0);
      return stderr;
    };
    try {
      await backUp({ ...installation.environment, BACKUP_TARGET: other });
      await rename(keys, own);
      await cp(join(other, 'keys/control'), keys, { recursive: true });
      expect(await failure()).to.match(opensNone);
    } finally {
      await installation.close();
      await rm(other, { recursive: true, force: true });
      await rm(keys, { recursive: true });
      await rename(own, keys);
    }
    expect(await failure({ MASTER_KEY: randomBytes(32).toString('base64') })).to.match(opensNone);
    await restore();
    expect(await tenants()).to.deep.equal(['acme active']);
  });
});
