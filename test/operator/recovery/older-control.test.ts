import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { addUser, generatePassword } from '../../../src/operator/people/users.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, type Script, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('restore of an older archive of the control database beside a newer one', () => {
  const server = use(createDedicatedServer);
  const passwords = createQuickPasswords();
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;

  const run = (script: Script, ...args: string[]) => succeed(environment, script, args);
  const setPassword = (slug: string, name: string, password: string) => {
    const args = ['user', 'password', slug, `${name}@${slug}.test`, '--password-stdin', '--yes'];
    return succeed(environment, 'tenant', args, `${password}\n`);
  };
  const controlArchive = async (): Promise<string> => {
    await backUp(environment);
    const archives: { slug: string | null; file: string }[] = JSON.parse(
      await run('tenant', 'backup', 'list', '--json'),
    );
    return archives.find(({ slug }) => slug === null)?.file ?? '';
  };
  const addRole = (slug: string, name: string, permissions: string) =>
    server.control(`insert into roles (tenant_id, name, permissions)
                    select id, '${name}', '{${permissions}}' from tenants where slug = '${slug}'`);
  const change = (name: string, role: string, scope = 'All') =>
    server.control(`update users u set role_id = r.id, scope = '${scope}' from roles r
                     where u.email = '${name}@acme.test' and r.tenant_id = u.tenant_id and r.name = '${role}'`);

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
  });

  it('where an older and a newer archive differ, the narrower rights hold, a replaced password is void, and all is printed', async () => {
    const first = await controlArchive();
    const archive = await readFile(join(folder, first));
    const before = await people();
    await change('demoted', 'Member');
    await change('promoted', 'Administrator');
    await change('moved', 'Seller', 'Self');
    await server.control(`update users set entity_id = 8 where email = 'moved@acme.test'`);
    await server.control(`update roles r set permissions = '{orders.read,reports.read}' from tenants t
                           where t.id = tenant_id and t.slug = 'acme' and r.name = 'Clerk'`);
    await server.control(`update users set entity_id = null where email = 'clerk@acme.test'`);
    await setPassword('acme', 'replaced', 'a new password 42');
    await eventually(async () => (await controlArchive()) !== first);
    await server.sql('drop database office with (force)');
    await writeFile(join(folder, first), archive); // the retention has removed it

    const printed = await run('control', 'restore', '--archive', first);

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
});
