import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { readable, startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use, useEach } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { factorsPath, factorWorld } from '../auth/factors/factor-world.ts';
import { SoftwareAuthenticator } from '../auth/factors/software-authenticator.ts';
import { addSampleUser, type SampleUser } from '../auth/sample-users.ts';
import {
  expectProblem,
  invitation,
  newAddress,
  rolesPath,
  usersPath,
} from '../people/people-world.ts';
import {
  identitiesPath,
  newPerson,
  providersPath,
  signInWorld,
  withFormerBuild,
} from './provider-world.ts';

const rulesPath = '/api/v1/auth/sign-in-rules';
const loginPath = '/api/v1/auth/login';
const mePath = '/api/v1/auth/me';
const password = 'correct horse battery staple';

describe('a tenant that refuses passwords', () => {
  const provider = use(startProvider);
  const mail = use(startMailServer);
  const world = useEach(() =>
    createWorld({ TRUSTED_PROVIDERS: provider.trusted, SMTP_URL: mail.url }),
  );
  let people: ReturnType<typeof signInWorld>;
  let keeper: SampleUser;
  let manager: SampleUser;
  let member: SampleUser;
  const atProvider = newPerson();

  beforeEach(async () => {
    people = signInWorld(world, provider);
    await controlSql(
      world,
      `update tenants set app_url = 'https://app.example.com/{action}#token={token}', features = '{selfRegistration}'
        where id = ?`,
      [world.acme.id],
    );
    [keeper, manager] = [await addManager(), await addManager()];
    member = await addSampleUser(world, world.acme);
    await people.configure(world.acme);
    await people.link(await world.login(world.acme, manager), atProvider);
  });

  const addManager = () => addSampleUser(world, world.acme, { role: 'Administrator' });
  const logIn = (user: { email: string; password: string }, tenant = world.acme) => {
    const { email, password } = user;
    return world.anonymous.post(loginPath, { email, password }, { 'X-Tenant': tenant.guid });
  };
  const put = async (PasswordLogins: 'allowed' | 'refused', Except: number[] = []) =>
    (await world.login(world.acme, keeper)).put(rulesPath, { PasswordLogins, Except });
  const refuse = async (Except = [keeper.id]): Promise<void> => {
    await people.signIn(atProvider);
    const { status, body } = await put('refused', Except);
    expect(status, JSON.stringify(body)).to.equal(200);
    await eventually(async () => (await logIn(member)).status === 401);
  };
  const post = (path: string, body: object) =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': world.acme.guid });
  const ended = (client: Client) =>
    eventually(async () => (await client.get(mePath)).status === 401);

  it('the rules of a tenant that has set none allow passwords', async () => {
    const client = await world.login(world.acme, keeper);

    expect((await client.get(rulesPath)).body).to.deep.equal({
      PasswordLogins: 'allowed',
      Except: [],
    });
  });

  it('a right password gets the response of a wrong one, but for those of Except, and for other tenants', async () => {
    await refuse();

    const { traceId: _, ...right } = (await logIn(member)).body;
    const { traceId: __, ...wrong } = (await logIn({ ...member, password: 'another' })).body;
    expect(right).to.deep.equal(wrong);
    expect((await logIn(keeper)).status).to.equal(200);
    expect((await logIn(world.globex.admin, world.globex)).status).to.equal(200);
    expect((await people.signIn(atProvider)).tokens?.accessToken).to.be.a('string');
  });

  it('sessions that a password has opened end at their next use and refresh, and those of a provider and of Except go on', async () => {
    const byPassword = await world.login(world.acme, member);
    const ofKeeper = await world.login(world.acme, keeper);
    const byProvider = await people.signIn(atProvider);

    await refuse();

    await ended(byPassword);
    const { refreshToken } = byPassword.tokens!;
    expectProblem(await post('refresh', { refreshToken }), 401, 'invalid_refresh_token');
    expect((await byProvider.get(mePath)).status).to.equal(200);
    expect((await ofKeeper.get(mePath)).status).to.equal(200);
  });

  it('a stream of changes that a password has opened ends, and one of a provider goes on', async () => {
    const reader = await addManager();
    const open = async (client: Client) => {
      const stream = { isEnded: false, abort: new AbortController() };
      const { status, body } = await fetch(`${world.url}/api/v1/Changes/stream?after=now`, {
        headers: { Authorization: `Bearer ${client.tokens?.accessToken}` },
        signal: stream.abort.signal,
      });
      expect(status).to.equal(200);
      const read = async (): Promise<void> => {
        for await (const _ of body ?? []);
        stream.isEnded = true;
      };
      read().catch(() => undefined);
      return stream;
    };
    const byPassword = await open(await world.login(world.acme, reader));
    const byProvider = await open(await people.signIn(atProvider));

    await refuse();

    await eventually(() => byPassword.isEnded);
    expect(byProvider.isEnded).to.equal(false);
    byProvider.abort.abort();
  });

  it('a person whose password is refused proves a sign-in at the provider in its place, and not the password', async () => {
    await refuse();
    const client = await people.signIn(atProvider);
    const link = async () =>
      client.post(identitiesPath, { idToken: await provider.signIn(newPerson()) });
    expect((await link()).status).to.equal(201);
    await controlSql(
      world,
      `update sessions set created_at = created_at - interval '6 minutes' where user_id = ?`,
      [manager.id],
    );
    expectProblem(await link(), 403, 'verification_required');

    const byPassword = await client.post('/api/v1/auth/verify', { password: manager.password });
    expectProblem(byPassword, 401, 'invalid_credentials');
    const idToken = await provider.signIn(atProvider);
    const byProvider = await client.post('/api/v1/auth/verify', { idToken });
    expect(byProvider.status, JSON.stringify(byProvider.body)).to.equal(200);
    expect((await link()).status).to.equal(201);
  });

  it('a person whose password is refused cannot unlink the last identity', async () => {
    await refuse();
    const client = await people.signIn(atProvider);
    const [{ id }] = (await client.get(identitiesPath)).body;

    expectProblem(await client.delete(`${identitiesPath}/${id}`), 400, 'wrong_state');
    expect((await client.get(identitiesPath)).body).to.have.length(1);
  });

  it('a person whose password is refused, and who asks for a new one, gets a mail that names the provider, without a link', async () => {
    await refuse();
    const named = `update identity_providers set name = 'Staff https://evil.example'`;
    await controlSql(world, named);

    const asked = await post('reset-password', { email: member.email });
    const unknown = await post('reset-password', { email: newAddress() });
    await post('reset-password', { email: keeper.email });

    expect([asked.status, asked.body]).to.deep.equal([unknown.status, unknown.body]);
    const mailTo = (address: string, subject: string) =>
      eventually(() =>
        mail
          .messagesTo(address)
          .map(({ content }) => content)
          .find(content => content.includes(`Subject: ${subject}`)),
      );
    const helpful = await mailTo(member.email, 'How to log in');
    expect(helpful).to.include('Staff').and.not.include('token');
    expect(helpful).not.to.include('evil.example');
    expect(await mailTo(keeper.email, 'A new password')).to.include('token');
  });

  it('allowed passwords of a tenant that has set no rules are no change: no mail, no row', async () => {
    expect((await put('allowed')).status).to.equal(200);

    const tables = ['sign_in_rules', 'account_notices'];
    for (const table of tables) {
      const found = await controlSql(
        world,
        `select 1 from ${table} where tenant_id = ? ${table === 'account_notices' ? `and kind = 'sign_in_rules_changed'` : ''}`,
        [world.acme.id],
      );
      expect(found, table).to.deep.equal([]);
    }
  });

  it('a login that waits for its second factor, and a passkey alone, are refused as wrong ones are', async () => {
    const factors = factorWorld(world);
    const { person, client } = await factors.add(world.acme);
    const authenticator = new SoftwareAuthenticator();
    const pages = { Origin: 'https://app.example.com' };
    const { body: options } = await client.post(`${factorsPath}/passkeys/options`, {}, pages);
    const passkey = authenticator.create(options);
    expect((await client.post(`${factorsPath}/passkeys`, { passkey })).status).to.equal(201);
    const { body: waiting } = await factors.login(person);
    const { body: alone } = await post('login/passkey/options', {});

    await refuse();

    const proof = { challenge: waiting.challenge, passkey: authenticator.get(waiting.passkey) };
    expectProblem(await factors.verify(person, proof), 401, 'invalid_challenge');
    const byPasskey = await post('login/passkey', { passkey: authenticator.get(alone) });
    expectProblem(byPasskey, 401, 'invalid_passkey');
  });

  it('neither a password nor a passkey opens a session in the database, whatever build asks', async () => {
    await refuse();

    for (const methods of ['{pwd}', '{pwd,otp}', '{pop,user}']) {
      const inserted = controlSql(
        world,
        'insert into sessions (tenant_id, user_id, methods) values (?, ?, ?::text[])',
        [world.acme.id, member.id, methods],
      );
      await inserted.then(
        () => expect.fail(methods),
        error => expect(String(error)).to.include('refuses passwords'),
      );
    }
  });

  it('links set no password, and nobody registers', async () => {
    const [reset, registered] = [member.email, newAddress()];
    await post('reset-password', { email: reset });
    await post('register', { email: registered, password, firstName: 'Nora', lastName: 'Newman' });
    const tokens = {
      reset: await mail.waitForToken(reset),
      registered: await mail.waitForToken(registered),
    };
    const admin = await world.login(world.acme, keeper);
    const invited = newAddress();
    await admin.post(usersPath, invitation({ Email: invited }));
    const accept = await mail.waitForToken(invited);

    await refuse();

    for (const token of [tokens.reset, accept]) {
      const answer = await post('reset-password', { token, newPassword: password });
      expectProblem(answer, 400, 'wrong_state');
    }
    expectProblem(await post('confirm', { token: tokens.registered }), 400, 'wrong_state');
    const again = { email: newAddress(), password, firstName: 'Nora', lastName: 'Newman' };
    expectProblem(await post('register', again), 401, 'unauthorized');
  });

  it('an invitation is accepted with an ID token, whatever address the provider names', async () => {
    await refuse();
    const admin = await world.login(world.acme, keeper);
    const invited = newAddress();
    await admin.post(usersPath, invitation({ Email: invited }));
    const token = await mail.waitForToken(invited);
    const [invites] = mail.messagesTo(invited).map(({ content }) => readable(content));
    expect(invites)
      .to.include('Accept the invitation')
      .and.not.match(/password/i);
    const person = newPerson({ email: 'somebody@elsewhere.example', email_verified: true });

    const accepted = await post('reset-password', {
      token,
      idToken: await provider.signIn(person),
    });

    expect(accepted.status, JSON.stringify(accepted.body)).to.equal(204);
    const { body: me } = await (await people.signIn(person)).get(mePath);
    const { body: users } = await admin.get(`${usersPath}?filter[Email]=${invited}`);
    expect(me.userGuid).to.equal(users[0].Guid);
  });

  it('passwords are allowed again, and those of before are good', async () => {
    await refuse();

    expect((await put('allowed')).status).to.equal(200);

    await eventually(async () => (await logIn(member)).status === 200);
  });

  it('the operator allows passwords again', async () => {
    await refuse();

    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['edit', 'acme', '--password-logins', 'allowed', '--reason', 'the provider is gone'],
      world.environment,
    );

    expect(code, stderr).to.equal(0);
    await eventually(async () => (await logIn(member)).status === 200);
  });

  describe('refuses them only', () => {
    it('if a manager has signed in at a provider within the hour', async () => {
      expectProblem(await put('refused', [keeper.id]), 400, 'wrong_state');

      await people.signIn(atProvider);
      await controlSql(world, `update identities set last_used_at = now() - interval '61 minutes'`);
      expectProblem(await put('refused', [keeper.id]), 400, 'wrong_state');
    });

    it('if the provider of that sign-in is enabled', async () => {
      await people.signIn(atProvider);
      await controlSql(world, 'update identity_providers set is_enabled = false');

      expectProblem(await put('refused', [keeper.id]), 400, 'wrong_state');
    });

    it('if the tenant has an address of its application', async () => {
      await people.signIn(atProvider);
      await controlSql(world, 'update tenants set app_url = null where id = ?', [world.acme.id]);

      const refused = await eventually(async () => {
        const answer = await put('refused', [keeper.id]);
        return answer.status === 400 && answer;
      });
      expectProblem(refused, 400, 'wrong_state');
    });

    it('if Except has a person who manages the users and has a password', async () => {
      await people.signIn(atProvider);

      expectProblem(await put('refused', []), 400, 'wrong_state');
      expectProblem(await put('refused', [member.id]), 400, 'wrong_state');
    });

    it('if Except has people of the tenant only', async () => {
      await people.signIn(atProvider);
      const foreign = await addSampleUser(world, world.globex, { role: 'Administrator' });

      const refused = await put('refused', [keeper.id, foreign.id]);

      expectProblem(refused, 400, 'validation_failed');
      expect(Object.keys(refused.body.errors)).to.deep.equal(['Except[1]']);
    });

    it('for who has every permission of the tenant, scope All, and a fresh proof', async () => {
      await people.signIn(atProvider);
      const body = { PasswordLogins: 'refused', Except: [keeper.id] };
      const lesser = await world.loginAs(world.acme, { permissions: ['users.manage'] });
      const scoped = await world.loginAs(world.acme, {
        permissions: ['users.manage'],
        scope: 'Self',
      });
      const late = await world.login(world.acme, keeper);
      await controlSql(world, `update sessions set created_at = now() - interval '6 minutes'`);

      expectProblem(await lesser.put(rulesPath, body), 403, 'forbidden');
      expectProblem(await scoped.put(rulesPath, body), 403, 'forbidden');
      expectProblem(await scoped.get(rulesPath), 403, 'forbidden');
      expectProblem(await late.put(rulesPath, body), 403, 'verification_required');
    });
  });

  describe('keeps the last person of Except', () => {
    it('who cannot be disabled, nor lose the right or the scope, by an administrator', async () => {
      await refuse();
      const client = await people.signIn(atProvider);
      const { body: user } = await client.get(`${usersPath}/${keeper.id}`);
      const changed = (changes: object) =>
        client.put(`${usersPath}/${keeper.id}`, { ...user, ...changes });

      expectProblem(await client.post(`${usersPath}/${keeper.id}/disable`), 400, 'wrong_state');
      expectProblem(await changed({ Role: 'Member' }), 400, 'wrong_state');
      expectProblem(await changed({ Scope: 'Self' }), 400, 'wrong_state');
    });

    it('nor lose it with a role', async () => {
      await people.signIn(atProvider);
      const admin = await world.login(world.acme, keeper);
      const { body: role } = await admin.post(rolesPath, {
        Name: 'Keeper',
        Permissions: ['users.manage', 'users.read'],
      });
      const other = await addSampleUser(world, world.acme, { role: 'Keeper' });
      await refuse([other.id]);
      const client = await people.signIn(atProvider);

      const refused = await client.put(`${rolesPath}/${role.Id}`, {
        Name: 'Keeper',
        Permissions: ['users.read'],
      });

      expectProblem(refused, 400, 'wrong_state');
    });

    it('who can be disabled if another one remains', async () => {
      const second = await addManager();
      await refuse([keeper.id, second.id]);
      const client = await people.signIn(atProvider);

      const disabled = await client.post(`${usersPath}/${keeper.id}/disable`);

      expect(disabled.status, JSON.stringify(disabled.body)).to.equal(200);
      expectProblem(await client.post(`${usersPath}/${second.id}/disable`), 400, 'wrong_state');
    });

    it('whom no command disables', async () => {
      await refuse();

      const { code, stderr } = await runCommand(
        'scripts/tenant.ts',
        ['user', 'disable', 'acme', keeper.email, '--yes'],
        world.environment,
      );

      expect(code).not.to.equal(0);
      expect(stderr).to.include('--password-logins allowed');
    });
  });

  it('each change of the rules has an audit entry of the resource SignInRule', async () => {
    await refuse();
    const client = await people.signIn(atProvider);

    const { body: entries } = await client.get('/api/v1/AuditLog?resource=SignInRule');

    expect(entries).to.have.length(1);
    expect(entries[0].After).to.deep.equal({
      PasswordLogins: 'refused',
      ExceptUsers: [keeper.id],
    });
    expect(entries[0].UserId).to.equal(keeper.id);
  });

  it('all administrators get a mail on each change of the rules', async () => {
    await refuse();

    const [first] = await eventually(async () => {
      const found = mail
        .messagesTo(manager.email)
        .filter(({ content }) => content.includes('by password'));
      return found.length > 0 && found;
    });
    expect(first?.content).to.include(keeper.email);
  });

  it('a purge of the tenant removes its rules', async () => {
    await refuse();

    await controlSql(world, 'delete from tenant_databases where tenant_id = ?', [world.acme.id]);
    // Tried again: unlike a purge, it does not wait for mails that are being sent.
    await eventually(async () => {
      await controlSql(world, 'delete from tenants where id = ?', [world.acme.id]);
      return true;
    });

    expect(await controlSql(world, 'select from sign_in_rules')).to.have.length(0);
  });

  it('no rule is made while a former build runs', async () => {
    await people.signIn(atProvider);
    const refused = await withFormerBuild(world, () => put('refused', [keeper.id]));

    expectProblem(refused, 503, 'migration_pending');
  });

  it('administrators who sign in by a provider manage providers as before', async () => {
    await refuse();

    expect((await (await people.signIn(atProvider)).get(providersPath)).status).to.equal(200);
  });
});
