import { expect } from 'chai';
import { addSampleUser } from '../../auth/sample-users.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';

describe('commands for roles and users', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  async function json<Document>(...args: string[]): Promise<Document> {
    const { code, stdout, stderr } = await tenant(...args, '--json');
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as Document;
  }
  const newestEntry = async (resource: string, key: unknown) =>
    (await admin.get(`/api/v1/AuditLog?resource=${resource}&key=${key}&limit=1`)).body[0];

  it('an operator adds, grants, revokes, lists and removes a role, and the audit log has each change', async () => {
    const added = await json('role', 'add', 'acme', 'Buyer', 'orders.write', 'orders.read');
    expect(added).to.deep.equal({ name: 'Buyer', users: 0, permissions: ['orders.read', 'orders.write'] });
    const user = await addSampleUser(world, world.acme, { role: 'Buyer' });
    const client = await world.login(world.acme, user);
    const more = ['full.read', 'orders.read', 'full.read'];
    const granted = await json<{ permissions: string[] }>('role', 'grant', 'acme', 'Buyer', ...more);
    expect(granted.permissions).to.deep.equal(['orders.read', 'orders.write', 'full.read']);
    const fresh = await world.login(world.acme, user);
    expect((await client.get('/api/v1/EntityStatus')).status, 'a token of before').to.equal(403);
    expect((await fresh.get('/api/v1/EntityStatus')).status).to.equal(200);
    const { stdout } = await tenant('role', 'revoke', 'acme', 'Buyer', 'full.read');
    expect(stdout).to.match(/^name +Buyer\nusers +1\npermissions +orders\.read orders\.write\n$/);
    await eventually(async () => (await fresh.get('/api/v1/EntityStatus')).status === 403, announcedMs);

    const roles = await json<{ name: string; users: number }[]>('role', 'list', 'acme');
    expect(roles.map(({ name, users }) => [name, users])).to.deep.equal([
      ['Administrator', 1],
      ['Buyer', 1],
      ['Member', 0],
    ]);
    const held = await tenant('role', 'remove', 'acme', 'Buyer', '--yes');
    expect([held.code, held.stderr]).to.deep.equal([
      1,
      'Users of acme have the role Buyer. Give them another: npx backoffice user change acme EMAIL --role ROLE\n',
    ]);
    await json('user', 'change', 'acme', user.email, '--role', 'Member');
    expect(await json('role', 'remove', 'acme', 'Buyer', '--yes')).to.deep.equal({ name: 'Buyer', state: 'removed' });
    const entries = await controlSql<{ action: string; user_id: null }>(
      world,
      `select action, user_id, database_user from audit_log where resource = 'Role' and coalesce(before, after) ->> 'name' = 'Buyer' order by id`,
    );
    expect(entries.map(({ action }) => action)).to.deep.equal(['create', 'update', 'update', 'delete']);
    for (const entry of entries) expect(entry).to.include({ user_id: null, database_user: 'postgres' });
  });

  it('an operator changes role, scope, entity and names of a user, and a running service applies them within 1 s', async () => {
    const user = await addSampleUser(world, world.acme);
    const client = await world.login(world.acme, user);
    const [entity] = await sql<{ id: string }>(
      world.acme,
      `insert into entities (name, entity_type, status_id) values ('One', 'customer', 1) returning id`,
    );
    const names = ['--first-name', 'Ada', '--last-name', 'Late'];
    const access = ['--role', 'Administrator', '--scope', 'Self', '--entity', String(entity?.id)];
    const changed = await json<object>('user', 'change', 'acme', user.email, ...names, ...access);
    const expected = { firstName: 'Ada', lastName: 'Late', role: 'Administrator', scope: 'Self' };
    expect(changed).to.deep.equal({ guid: user.guid, email: user.email, ...expected, entityId: Number(entity?.id) });
    await eventually(async () => {
      const { body } = await client.get('/api/v1/auth/me');
      return body.role === 'Administrator' && body.scope === 'Self' && body.userEntityId === Number(entity?.id);
    }, 1_000);
    const without = await json<object>('user', 'change', 'acme', user.email, '--no-entity');
    expect(without).to.deep.equal({ guid: user.guid, email: user.email, ...expected, entityId: null });
    const entry = await newestEntry('User', user.id);
    expect([entry.UserId, entry.Before.EntityId, entry.After.EntityId]).to.deep.equal([null, Number(entity?.id), null]);
  });

  it('user change gives no role to an address that somebody has registered and nobody has confirmed', async () => {
    const [user] = await controlSql<{ id: string; email: string }>(
      world,
      `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope)
       select tenant_id, 'registered@acme.test', 'none', 'Rea', 'Gister', id, 'Self' from roles
        where name = 'Member' and tenant_id = (select id from tenants where slug = 'acme')
       returning id, email`,
    );
    const stored = () => controlSql(world, 'select * from users where id = ?', [user?.id]);
    const before = await stored();
    const { code, stderr } = await tenant('user', 'change', 'acme', user?.email ?? '', '--role', 'Administrator');
    expect([code, stderr]).to.deep.include(1);
    expect(stderr).to.include('registered@acme.test has not confirmed a registration');
    expect(await stored()).to.deep.equal(before);
  });

  it('user password says of somebody who is disabled or has not confirmed the address that it opens no login yet', async () => {
    const user = await addSampleUser(world, world.acme);
    await json('user', 'disable', 'acme', user.email, '--yes');
    const disabled = await tenant('user', 'password', 'acme', user.email, '--yes');
    expect([disabled.code, disabled.stderr]).to.deep.equal([
      0,
      `Warning: ${user.email} is disabled. Allow the logins: npx backoffice user enable acme ${user.email}\n`,
    ]);
    await controlSql(world, 'update users set disabled_at = null, confirmed_at = null where id = ?', [user.id]);
    const unconfirmed = await tenant('user', 'password', 'acme', user.email, '--yes');
    expect(unconfirmed.code).to.equal(0);
    expect(unconfirmed.stderr).to.include('has no login until the link of the mail is used');
  });

  it('a wrong command for roles or users names the mistake, and changes nothing', async () => {
    const roles = () => controlSql(world, 'select * from roles order by id');
    const before = await roles();
    for (const [args, code, text] of [
      [['role', 'add', 'acme', 'member'], 1, 'acme has a role member already'],
      [['role', 'grant', 'acme', 'Member', 'orders.fly'], 2, 'Unknown permission orders.fly'],
      [['role', 'revoke', 'acme', 'Member', 'full.red'], 2, 'Unknown permission full.red'],
      [['role', 'revoke', 'acme', 'Nobody', 'orders.read'], 1, 'acme has no role Nobody. List its roles'],
      [['role', 'remove', 'acme', 'Member', '--yes'], 1, 'Every tenant has the role Member'],
      [['user', 'change', 'acme', world.acme.admin.email], 2, 'Name what to change'],
      [['user', 'change', 'acme', world.acme.admin.email, '--entity', '1', '--no-entity'], 2, 'Give either --entity'],
      [['user', 'find', ''], 2, "argument 'email'. It is empty."],
      [['user', 'list', ' '], 2, "argument 'slug'. It is empty."],
      [['role', 'grant', 'acme', 'Member', ''], 2, "argument 'permissions'. It is empty."],
      [['user', 'change', 'acme', world.acme.admin.email, '--last-name', '\u001b[31m'], 2, 'The last name must not'],
      [['user', 'add', 'acme', 'new@acme.test', '--first-name', ' '], 2, 'The first name must not be empty'],
      [['user', 'change', 'acme', world.acme.admin.email, '--entity', '4711'], 1, 'acme has no entity 4711'],
    ] as const) {
      const result = await tenant(...args);
      expect([args, result.code]).to.deep.equal([args, code]);
      expect(result.stderr).to.include(text);
    }
    expect(await roles()).to.deep.equal(before);
  });

  it('user find lists each tenant that has a user with the address, however that is written, and no other user', async () => {
    const { email } = await addSampleUser(world, world.acme);
    await addSampleUser(world, world.globex, { email, role: 'Administrator' });
    await addSampleUser(world, world.globex);
    const find = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await tenant('user', 'find', ...args);
      expect([code, stderr]).to.deep.equal([0, '']);
      return stdout;
    };
    const found = JSON.parse(await find(` ${email.toUpperCase()}`, '--json'));
    expect(found.map(({ tenant, status, role }: Record<string, string>) => [tenant, status, role])).to.deep.equal([
      ['acme', 'active', 'Member'],
      ['globex', 'active', 'Administrator'],
    ]);
    expect(await find(email, '-o', 'name')).to.equal('acme\nglobex\n');
    expect(await find('nobody@acme.test')).to.equal('No tenant has a user nobody@acme.test.\n');
  });

  it('an index has the users by address, so that the search reads no user of the other tenants', async () => {
    const [plan] = await world.control.em.fork().transactional(async em => {
      await em.execute('set local enable_seqscan = off');
      return em.execute<object[]>(`explain (format json) select from users where email = 'bob@acme.test'`);
    });
    expect(JSON.stringify(plan)).to.include('users_email_index');
  });
});
