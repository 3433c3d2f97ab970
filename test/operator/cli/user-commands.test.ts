import { expect } from 'chai';
import { factorWorld } from '../../accounts/auth/factors/factor-world.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { expectProblem } from '../../accounts/people/people-world.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

describe('commands for users', () => {
  const world = useWorld();

  const tenant = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  async function json<Document>(...args: string[]): Promise<Document> {
    const { code, stdout, stderr } = await tenant(...args, '--json');
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as Document;
  }

  it('user role gives no role to an address that somebody has registered and nobody has confirmed', async () => {
    const [user] = await controlSql<{ id: string; email: string }>(
      world,
      `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope)
       select tenant_id, 'registered@acme.test', 'none', 'Rea', 'Gister', id, 'Self' from roles
        where name = 'Member' and tenant_id = (select id from tenants where slug = 'acme')
       returning id, email`,
    );
    const stored = () => controlSql(world, 'select * from users where id = ?', [user?.id]);
    const before = await stored();

    const { code, stderr } = await tenant(
      'user',
      'role',
      'acme',
      user?.email ?? '',
      'Administrator',
    );

    expect(code, stderr).to.equal(1);
    expect(stderr).to.include('registered@acme.test has not confirmed a registration');
    expect(await stored()).to.deep.equal(before);
  });

  it('user password says that the password opens no login yet, for a user who is disabled or has not confirmed the address', async () => {
    const user = await addSampleUser(world, world.acme);
    await json('user', 'disable', 'acme', user.email, '--yes');

    const disabled = await tenant('user', 'password', 'acme', user.email, '--yes');
    expect(disabled.code).to.equal(0);
    expect(disabled.stderr).to.equal(
      `Warning: ${user.email} is disabled. Allow the logins: bin/backoffice user enable acme ${user.email}\n`,
    );

    await controlSql(
      world,
      'update users set disabled_at = null, confirmed_at = null where id = ?',
      [user.id],
    );

    const unconfirmed = await tenant('user', 'password', 'acme', user.email, '--yes');
    expect(unconfirmed.code).to.equal(0);
    expect(unconfirmed.stderr).to.include('has no login until the link of the mail is used');
  });

  it('user factors reset wants a reason, removes the factors of one user, and is in the log of operators and the audit log', async () => {
    const people = factorWorld(world);
    const { person, client } = await people.add(world.acme);
    await people.addTotp(client);
    const other = await people.add(world.globex);
    await people.addTotp(other.client);
    const secondFactorOf = async (slug: string, address: string) => {
      const users = await json<{ email: string; secondFactor: string }[]>('user', 'list', slug);
      return users.find(({ email }) => email === address)?.secondFactor;
    };
    const reset = ['user', 'factors', 'reset', 'acme', person.email];
    expect(await secondFactorOf('acme', person.email)).to.equal('yes');

    const without = await tenant(...reset, '--yes');
    expect(without.code).to.equal(2);
    expect(without.stderr).to.include('--reason');
    const planned = await tenant(...reset, '--reason', 'lost the phone', '--dry-run');
    expect(planned.stdout).to.include(
      `${person.email} would lose 1 second factor and all recovery codes.`,
    );
    expectProblem(await people.login(person), 401, 'second_factor_required');

    const { factors } = await json<{ factors: number }>(
      ...reset,
      '--reason',
      'lost the phone',
      '--yes',
    );
    expect(factors).to.equal(1);
    expect(await secondFactorOf('acme', person.email)).to.equal('no');
    expect((await people.login(person)).status).to.equal(200);
    expectProblem(await people.login(other.person), 401, 'second_factor_required');

    const logged = await tenant('logs', 'acme');
    expect(logged.stdout).to.include('user factors reset').and.include('lost the phone');
    const [removal] = await controlSql<{ user_id: string | null; action: string; login: string }>(
      world,
      `select user_id, action, database_user as login from audit_log
        where resource = 'Factor' and tenant_id = ? order by id desc limit 1`,
      [world.acme.id],
    );
    expect(removal).to.deep.include({ user_id: null, action: 'delete' });
    expect(removal?.login).not.to.equal('');
  });

  it('a wrong command for users names the mistake, and changes nothing', async () => {
    const roles = () => controlSql(world, 'select * from roles order by id');
    const before = await roles();

    for (const [args, code, text] of [
      [['user', 'find', ''], 2, "argument 'email'. It is empty."],
      [['user', 'list', ' '], 2, "argument 'slug'. It is empty."],
      [
        ['user', 'add', 'acme', 'new@acme.test', '--last-name', '\u001b[31m'],
        2,
        'The last name must not',
      ],
      [['user', 'add', 'acme', 'new@acme.test', '--entity', '4711'], 1, 'acme has no entity 4711'],
      [
        ['user', 'role', 'acme', world.acme.admin.email, 'Nobody'],
        1,
        'acme has no role Nobody. Its roles are Administrator, Member',
      ],
      [
        ['user', 'add', 'acme', 'new@acme.test', '--first-name', ' '],
        2,
        'The first name must not be empty',
      ],
    ] as const) {
      const result = await tenant(...args);

      expect(result.code, args.join(' ')).to.equal(code);
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
      expect(code, stderr).to.equal(0);
      expect(stderr).to.equal('');

      return stdout;
    };

    const found = JSON.parse(await find(` ${email.toUpperCase()}`, '--json'));
    expect(
      found.map(({ tenant, status, role }: Record<string, string>) => [tenant, status, role]),
    ).to.deep.equal([
      ['acme', 'active', 'Member'],
      ['globex', 'active', 'Administrator'],
    ]);

    expect(await find(email, '-o', 'name')).to.equal('acme\nglobex\n');
    expect(await find('nobody@acme.test')).to.equal('No tenant has a user nobody@acme.test.\n');
  });

  it('an index has the users by address, so that the search reads no user of the other tenants', async () => {
    const [plan] = await world.control.em.fork().transactional(async em => {
      await em.execute('set local enable_seqscan = off');
      return em.execute<object[]>(
        `explain (format json) select from users where email = 'bob@acme.test'`,
      );
    });
    expect(JSON.stringify(plan)).to.include('users_email_index');
  });
});
