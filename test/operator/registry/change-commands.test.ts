import { expect } from 'chai';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('commands that change people and tenants', () => {
  const world = useWorld();

  const run = (...args: string[]) => runCommand('scripts/backoffice.ts', args, world.environment);
  async function json<Document>(...args: string[]): Promise<Document> {
    const { code, stdout, stderr } = await run(...args, '--json');
    expect({ code, stderr }, args.join(' ')).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as Document;
  }
  const isServed = async (client: Client): Promise<boolean> =>
    (await client.get(path)).status === 200;
  const logged = async (...args: string[]): Promise<string[]> =>
    (await json<{ items: { command: string }[] }>('logs', ...args)).items.map(
      ({ command }) => command,
    );

  it('user remove ends all sessions and legacy clients of a user, and no others', async () => {
    await controlSql(world, `update tenants set features = '{legacyTokens}'`);
    const [gone, other] = [
      await addSampleUser(world, world.acme),
      await addSampleUser(world, world.acme),
    ];
    const [ofGone, ofOther] = [
      await world.login(world.acme, gone),
      await world.login(world.acme, other),
    ];
    const { id, secret } = await json<{ id: string; secret: string }>(
      'client',
      'add',
      'acme',
      gone.email,
      '--name',
      'x',
    );
    const { body } = await world.anonymous.get('/api/Data/GenerateToken', {
      Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
    });
    const legacy = world.anonymous.withToken(body.token);
    for (const client of [ofGone, ofOther, legacy]) expect(await isServed(client)).to.equal(true);

    const losses = {
      guid: gone.guid,
      email: gone.email,
      role: 'Member',
      scope: 'All',
      sessions: 1,
      clients: 1,
      clones: [],
    };
    const planned = await json('user', 'remove', 'acme', gone.email, '--dry-run');
    expect(planned).to.deep.equal({ ...losses, state: 'planned' });
    const unconfirmed = await run('user', 'remove', 'acme', gone.email);
    expect(unconfirmed.code).to.equal(2);
    expect(unconfirmed.stderr).to.match(/Add --yes to confirm; nothing was changed/);
    expect(await isServed(ofGone), 'after a plan, and without a confirmation').to.equal(true);

    const removed = await json(
      'user',
      'remove',
      'acme',
      gone.email.toUpperCase(),
      '--yes',
      '--reason',
      'asked for it',
    );
    expect(removed).to.deep.equal({ ...losses, state: 'removed' });
    const refused = await eventually(
      async () => !(await isServed(ofGone)) && !(await isServed(legacy)),
      announcedMs,
    );
    expect(refused).to.equal(true);
    expect(await isServed(ofOther)).to.equal(true);
    const [entry] = await controlSql<{ email: string }>(
      world,
      `select before ->> 'email' as email from audit_log where action = 'delete' and record_key = ?`,
      [String(gone.id)],
    );
    expect(entry).to.deep.equal({ email: gone.email });
    expect(await logged('acme', '--command', 'user remove')).to.deep.equal(['user remove']);
    expect((await run('user', 'remove', 'acme', gone.email, '--yes')).stderr).to.match(
      /has no user/,
    );
  });

  it('no command takes the right to manage users from the last user of a tenant who has it, and a dry run refuses it too', async () => {
    const { email } = world.globex.admin;
    await addSampleUser(world, world.globex, { role: 'Administrator', scope: 'Self' });

    const commands = [
      ['user', 'remove', 'globex', email, '--yes'],
      ['user', 'disable', 'globex', email, '--yes'],
      ['user', 'role', 'globex', email, 'Member'],
      ['user', 'remove', 'globex', email, '--dry-run'],
      ['user', 'disable', 'globex', email, '--dry-run'],
      ['user', 'role', 'globex', email, 'Member', '--dry-run'],
    ];

    for (const command of commands) {
      const { code, stderr } = await run(...command);
      expect(code, command.join(' ')).to.equal(1);
      expect(stderr, command.join(' ')).to.equal(
        'Nobody could manage the users of globex any more: nothing was changed. Add another user first: ' +
          'bin/backoffice user add globex EMAIL --role Administrator --scope All\n',
      );
    }

    await addSampleUser(world, world.globex, { role: 'Administrator' });
    expect((await run('user', 'disable', 'globex', email, '--dry-run')).code).to.equal(0);
    expect((await run('user', 'remove', 'globex', email, '--yes')).code).to.equal(0);
  });

  it('user role shows the role of a user, and gives another one, which alone is in the log of operators', async () => {
    const { email } = await addSampleUser(world, world.acme);

    const shown = await json<Record<string, unknown>>('user', 'role', 'acme', email);
    expect(shown).to.include({ email, role: 'Member', scope: 'All' });
    expect(shown.others).to.deep.equal(['Administrator']);
    expect(await logged('acme', '--command', 'user role')).to.deep.equal([]);

    const planned = await json<object>('user', 'role', 'acme', email, 'Administrator', '--dry-run');
    expect(planned).to.include({ email, role: 'Administrator', state: 'planned' });
    expect(planned, 'the permissions of the role that the user has').to.not.have.property(
      'permissions',
    );

    const given = await json<{ role: string; permissions: string[] }>(
      'user',
      'role',
      'acme',
      email,
      'Administrator',
    );
    expect(given.role).to.equal('Administrator');
    expect(given.permissions).to.include('users.manage');
    expect(await logged('acme', '--command', 'user role')).to.deep.equal(['user role']);

    expect((await run('user', 'role', 'acme', email, 'Emperor')).stderr).to.match(
      /acme has no role Emperor/,
    );
  });

  it('edit changes name, identifier and features of one tenant, and with --dry-run nothing', async () => {
    await controlSql(world, `update tenants set features = '{legacyTokens}'`);
    const user = await addSampleUser(world, world.globex);
    const [acme, globex] = [await world.login(world.acme), await world.login(world.globex, user)];
    const before = (await globex.get('/api/v1/auth/me')).body;

    const edit = [
      'edit',
      'acme',
      '--name',
      'Acme 社',
      '--enable',
      'selfRegistration',
      '--disable',
      'legacyTokens',
    ];

    const planned = await json<{ changes: object[] }>(...edit, '--dry-run');
    expect(planned.changes).to.deep.equal([
      { field: 'name', from: 'acme Ltd', to: 'Acme 社' },
      { field: 'features', from: 'legacyTokens', to: 'selfRegistration' },
    ]);
    expect(await json<object>('show', 'acme')).to.include({ name: 'acme Ltd' });

    await json(...edit);
    const changed = await eventually(async () => {
      const { body } = await acme.get('/api/v1/auth/me');
      return body.features[0] === 'selfRegistration' && body;
    }, announcedMs);

    expect(changed.features).to.deep.equal(['selfRegistration']);
    expect(await json<object>('show', 'acme')).to.include({ name: 'Acme 社', appId: 'acme' });
    expect((await globex.get('/api/v1/auth/me')).body).to.deep.equal(before);
    expect(await logged('acme', '--command', 'edit')).to.deep.equal(['edit']);

    expect((await run('edit', 'acme')).code, 'nothing to change').to.equal(2);
    for (const option of ['--enable', '--disable']) {
      const unknown = await run('edit', 'acme', option, 'legacyToken');
      expect(unknown.code).to.equal(2);
      expect(unknown.stderr).to.equal(`${option} must be one of legacyTokens, selfRegistration.\n`);
    }
    await controlSql(world, `update tenants set features = '{ofOthers}' where slug = 'acme'`);
    await json('edit', 'acme', '--disable', 'ofOthers');
    expect(await json<{ features: string[] }>('show', 'acme')).to.deep.include({ features: [] });
    const unnamed = await run('edit', 'acme', '--name', ' ');
    expect(unnamed.code).to.equal(2);
    expect(unnamed.stderr).to.equal('--name must not be empty.\n');
  });
});
