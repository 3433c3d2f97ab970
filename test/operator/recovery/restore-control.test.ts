import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { addUser, generatePassword } from '../../../src/operator/people/users.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, type Script, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('restore of the control database', () => {
  const server = use(createDedicatedServer);
  const passwords = createQuickPasswords();
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

  const setPassword = (slug: string, name: string, password: string) => {
    const args = ['user', 'password', slug, `${name}@${slug}.test`, '--password-stdin', '--yes'];
    return succeed(environment, 'tenant', args, `${password}\n`);
  };
  const addRole = (slug: string, name: string, permissions: string) =>
    server.control(`insert into roles (tenant_id, name, permissions)
                    select id, '${name}', '{${permissions}}' from tenants where slug = '${slug}'`);
  const change = (name: string, role: string, scope = 'All') =>
    server.control(`update users u set role_id = r.id, scope = '${scope}' from roles r
                     where u.email = '${name}@acme.test' and r.tenant_id = u.tenant_id and r.name = '${role}'`);

  /** The people whose rights differ between the archives. */
  const people = () =>
    server.control<Record<string, unknown>>(
      `select split_part(u.email, '@', 1) || ' of ' || t.slug as name, r.name as role, array_to_string(r.permissions, ' ') as may,
              scope, entity_id::int as entity, password_hash = 'none' as reset
         from users u join roles r on r.id = u.role_id join tenants t on t.id = u.tenant_id
        where u.email not like 'admin@%' order by 1`,
    );

  before(async () => {
    environment = { ...server.environment, BACKUP_TARGET: folder };
    for (const slug of ['acme', 'globex']) {
      const { tenant } = await server.provision(slug);
      await addRole(slug, 'Buyer', 'orders.read,orders.write');
      await addRole(slug, 'Seller', 'orders.read,pricing.write');
      await addRole(slug, 'Clerk', 'orders.read,settings.write');
      const roles = {
        demoted: 'Administrator',
        promoted: 'Member',
        moved: 'Buyer',
        clerk: 'Clerk',
        replaced: 'Member',
        same: 'Clerk',
      };
      for (const [name, role] of Object.entries(roles))
        await addUser(server.installation, passwords, {
          ...{ tenant, email: `${name}@${slug}.test`, password: generatePassword(), firstName: name, lastName: name },
          ...{ role, scope: 'All', entityId: null },
        });
    }
    await server.control(`update users set entity_id = 7 where email in ('moved@acme.test', 'clerk@acme.test')`);
    await backUp(environment);
    [first = ''] = JSON.parse(await run('tenant', 'backup', 'list'))
      .filter(({ slug }: { slug: string | null }) => slug === null)
      .map(({ file }: { file: string }) => file);
    archive = await readFile(join(folder, first));
  });

  it('where an older and a newer archive differ, the narrower rights hold, a replaced password is void, and all is printed', async () => {
    const before = await people();
    await change('demoted', 'Member');
    await change('promoted', 'Administrator');
    await change('moved', 'Seller', 'Self');
    await server.control(`update users set entity_id = 8 where email = 'moved@acme.test'`);
    await server.control(`update roles r set permissions = '{orders.read,reports.read}' from tenants t
                           where t.id = tenant_id and t.slug = 'acme' and r.name = 'Clerk'`);
    await server.control(`update users set entity_id = null where email = 'clerk@acme.test'`);
    await setPassword('acme', 'replaced', 'a new password 42');
    await run('tenant', 'backup', 'run', '--all');
    await dropControl();
    await writeFile(join(folder, first), archive); // the retention has removed it

    const printed = await succeed(environment, 'control', ['restore', '--archive', first]);

    const after = await people();
    const of = (slug: string, rows: typeof after) => rows.filter(({ name }) => String(name).endsWith(slug));
    expect(of('globex', after), 'the other tenant').to.deep.equal(of('globex', before));
    const reads = String(before.find(({ role }) => role === 'Member')?.may);
    const restored = after.find(({ name }) => name === 'moved of acme')?.role;
    expect(restored).to.match(/^Restored [0-9a-f]{8}$/);
    const clerk = { role: 'Clerk', may: 'orders.read', scope: 'All', entity: null, reset: false };
    const member = { role: 'Member', may: reads, scope: 'All', entity: null, reset: false };
    expect(of('acme', after)).to.deep.equal([
      { name: 'clerk of acme', ...clerk },
      { name: 'demoted of acme', ...member },
      { name: 'moved of acme', role: restored, may: 'orders.read', scope: 'Self', entity: null, reset: false },
      { name: 'promoted of acme', ...member },
      { name: 'replaced of acme', ...member, reset: true },
      { name: 'same of acme', ...clerk },
    ]);
    for (const line of [
      'acme role Clerk: permissions orders.read, settings.write, later orders.read, reports.read: orders.read',
      'acme clerk@acme.test: entity 7, later none: none',
      'acme demoted@acme.test: role Administrator, later Member: Member',
      `acme moved@acme.test: role Buyer, later Seller: ${restored}; scope All, later Self: Self; entity 7, later 8: none`,
      'acme promoted@acme.test: role Member, later Administrator: Member',
      'acme replaced@acme.test: password replaced later: none, until a reset',
    ])
      expect(printed).to.include(`  ${line}\n`);
    expect(printed).to.not.include('same@').and.not.include('globex');
  });

  it('while a restore of the control database has not ended, no command fills it, and doctor names what is left', async () => {
    const failure = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await runCommand('scripts/tenant.ts', args, environment);
      expect(code, args.join(' ')).to.equal(1);
      return stderr;
    };
    const unfinished =
      /^A restore of the control database has begun, .* "office_restoring"\. .*: bin\/backoffice control restore\n$/;
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
      'If the control database in use is the right one, drop the other: ' +
        `psql "$DATABASE_URL" -c 'drop database "office_restoring"'`,
      `Run it again, with --all if lost tenants are to be restored: bin/backoffice control restore --archive ${file}`,
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

  it('another master key opens no archive: nothing is restored, and the message says so', async () => {
    await dropControl();
    const settings = { ...environment, MASTER_KEY: randomBytes(32).toString('base64') };
    const { code, stderr } = await runCommand('scripts/control.ts', ['restore'], settings);
    expect(code).to.equal(1);
    expect(stderr).to.match(
      /^MASTER_KEY opens no archive of the control database in folder .*: set the master key of the lost installation\.\n$/,
    );
    expect(await server.sql(`select from pg_database where datname = 'office'`)).to.have.length(0);
    await restore();
    expect(await tenants()).to.deep.equal(['acme active']);
  });
});
