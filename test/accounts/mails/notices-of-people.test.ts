import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { createPasswords } from '../../../src/accounts/auth/passwords.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { mailsSettled, tryMailsNow } from '../../support/mails.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant, useLogin } from '../../support/world.ts';
import { factorWorld, type Person, verifyPath } from '../auth/factors/factor-world.ts';
import { addRole, expectProblem, usersPath } from '../people/people-world.ts';
import { setIsolated } from './set-isolated.ts';

const loginPath = '/api/v1/auth/login';
const resetPath = '/api/v1/auth/reset-password';
const generatePath = '/api/Data/GenerateToken';

describe('notices to people on changes of their accounts', () => {
  const mail = use(startMailServer);
  const world = use(() =>
    createWorld({
      SMTP_URL: mail.url,
      TRUSTED_PROXIES: '127.0.0.1',
      RATE_LIMIT_PEOPLE: '1000/1m',
      RATE_LIMIT_LOGIN: '1000/1m',
    }),
  );
  const admin = useLogin(world, 'acme');
  let people: ReturnType<typeof factorWorld>;

  before(() => {
    people = factorWorld(world);
  });

  const from = (address: string, tenant: TestTenant = world.acme) => ({
    'X-Tenant': tenant.guid,
    'X-Forwarded-For': address,
  });
  const texts = ({ email }: Pick<Person, 'email'>) => mail.noticesTo(email);
  /** Waits until the notices of everything that was written have come to an end. */
  const settled = () => mailsSettled(world);
  /** Returns the only notice that a person has got. */
  const onlyNotice = async (person: Pick<Person, 'email'>): Promise<string> => {
    await eventually(() => texts(person).length > 0);
    await settled();
    expect(texts(person)).to.have.length(1);
    return texts(person)[0]!;
  };
  /** A person who is active, and knows of no change. */
  const add = (tenant: TestTenant = world.acme) => people.add(tenant);
  const command = async (...args: string[]) => {
    const { code, stderr } = await runCommand('scripts/tenant.ts', args, world.environment);
    expect(code, stderr).to.equal(0);
  };
  const forgetMails = () => controlSql(world, 'delete from account_notices');

  /** Sets a new password by the link of a mail. */
  const resetPassword = async ({ email, tenant }: Person, url = world.url): Promise<string> => {
    const client = world.anonymous.at(url);
    const before = mail.messagesTo(email).length;
    await client.post(resetPath, { email }, from('198.51.100.7', tenant));
    const token = await mail.waitForToken(email, before + 1);
    const newPassword = `a new password ${randomBytes(6).toString('hex')}`;
    const body = { token, newPassword };
    const { status } = await client.post(resetPath, body, from('198.51.100.7', tenant));
    expect(status).to.equal(204);
    return newPassword;
  };
  const logIn = async ({ tenant, email, password }: Person, address: string, url = world.url) => {
    const client = world.anonymous.at(url);
    const response = await client.post(loginPath, { email, password }, from(address, tenant));
    expect(response.status, JSON.stringify(response.body)).to.equal(200);
  };

  describe('on a new password', () => {
    it('a person learns of a new password by a link, with network, time and the factors that stay', async () => {
      const { person, client } = await add();
      const { secret } = await people.addTotp(client, 'Phone of <b>Mallory</b>');
      await eventually(() => texts(person).length === 1);
      await settled();

      await resetPassword(person);

      await eventually(() => texts(person).length === 2);
      const text = texts(person)[1];
      const today = new Date().toISOString().slice(0, 10);
      expect(text).to.match(/^Subject: Your password for .* was changed/m);
      expect(text).to.match(
        new RegExp(
          `^A new password was set by the link of a mail.\\n${today} at \\d\\d:\\d\\d UTC, network 198.51.100.7$`,
          'm',
        ),
      );
      expect(text).to.include('All sessions have ended, and so have the API clients');
      expect(text).to.match(
        new RegExp(`^Phone of b Mallory b \\(authenticator app\\), added on ${today} at`, 'm'),
      );
      expect(text).to.not.include(secret);
      expect(text).to.not.include('<b>Mallory');
    });

    it('a person learns of a new password that an operator has set, by SQL or the command line', async () => {
      const { person } = await add();

      await controlSql(world, `update users set password_hash = 'x' where email = ?`, [
        person.email,
      ]);

      await onlyNotice(person);
      await command('user', 'password', 'acme', person.email, '--yes');

      await eventually(() => texts(person).length === 2);
      for (const text of texts(person)) {
        expect(text).to.match(/A new password was set\.\n.* UTC, by the operator of the service\n/);
        expect(text).to.include('Your account has no second factor.');
        expect(text).to.not.include('All sessions have ended');
      }
    });

    it('a person learns of a new password that was set while logged in, and keeps API clients', async () => {
      const { person, client } = await add();
      const { id } = await addClient(world.installation, 'acme', person.email, 'Goes on');

      const newPassword = `a new password ${randomBytes(6).toString('hex')}`;
      const changed = await client.put('/api/v1/auth/password', { newPassword });
      expect(changed.status, JSON.stringify(changed.body)).to.equal(204);

      const text = await onlyNotice(person);
      expect(text).to.match(/A new password was set\.\n.* UTC, network 127\.0\.0\.1\n/);
      expect(text).to.include('Your other sessions have ended.');
      expect(text).to.not.include('API clients');
      expect(text).to.not.include(newPassword);
      const rows = await controlSql(
        world,
        'select from api_clients where id = ? and revoked_at is null',
        [id],
      );
      expect(rows).to.have.length(1);
    });

    it('neither a first password nor a hash that a login renews is a new password', async () => {
      const [{ person }, { person: first }, { person: last }] = [
        await add(),
        await add(),
        await add(),
      ];
      const outdated = await createPasswords(undefined, { memoryCost: 16, timeCost: 1 }).hash(
        person.password,
      );
      await controlSql(world, 'update users set password_hash = ? where email = ?', [
        outdated,
        person.email,
      ]);
      await controlSql(world, 'update users set confirmed_at = null where email = ?', [
        first.email,
      ]);
      await onlyNotice(person);

      await logIn(person, '127.0.0.1');
      await controlSql(
        world,
        `update users set confirmed_at = now(), password_hash = 'first' where email = ?`,
        [first.email],
      );
      await controlSql(world, `update users set password_hash = 'x' where email = ?`, [last.email]);

      await onlyNotice(last);
      const [stored] = await controlSql(
        world,
        'select password_hash <> ? as "isRenewed" from users where email = ?',
        [outdated, person.email],
      );
      expect(stored).to.deep.equal({ isRenewed: true });
      expect(texts(person)).to.have.length(1);
      expect(texts(first)).to.deep.equal([]);
    });
  });

  describe('on second factors', () => {
    it('a person learns of a factor that was added, of one that was removed, and of a reset', async () => {
      const { person, client, userId } = await add();
      const first = await people.addTotp(client, 'First phone');
      const second = await people.addTotp(client, 'Second phone');
      expect((await client.delete(`/api/v1/auth/factors/${first.id}`)).status).to.equal(204);
      await eventually(() => texts(person).length === 3);

      expect((await admin.post(`${usersPath}/${userId}/factors/reset`)).status).to.equal(200);

      await eventually(() => texts(person).length === 4);
      await settled();
      const [addedFirst, addedSecond, removed, reset] = texts(person);
      expect(texts(person)).to.have.length(4);
      expect(addedFirst).to.match(/^Subject: A second factor was added to your account at/m);
      expect(addedFirst).to.match(
        /Added: First phone \(authenticator app\)\n.* UTC, network 127.0.0.1/,
      );
      expect(addedSecond).to.include('Added: Second phone');
      expect(removed).to.match(/Removed: First phone\n.* UTC, network 127.0.0.1/);
      expect(removed).to.include('Second factors that are left: 1');
      expect(reset).to.match(/^Subject: Your second factors at .* were reset/m);
      expect(reset).to.match(/Removed: Second phone\n.* UTC, by an administrator/);
      expect(reset).to.include('You have no second factor any more');
      for (const text of texts(person)) expect(text).to.not.include(second.secret);
    });

    it('a person learns of a reset by the operator, with the name of what was removed', async () => {
      const { person, client } = await add();
      await people.addTotp(client, 'My phone');
      await eventually(() => texts(person).length === 1);

      const reason = ['--reason', 'lost the phone', '--yes'];
      await command('user', 'factors', 'reset', 'acme', person.email, ...reason);

      await eventually(() => texts(person).length === 2);
      expect(texts(person)[1]).to.match(
        /Removed: My phone\n.* UTC, by the operator of the service/,
      );
    });

    it('a factor that was never confirmed causes no notice', async () => {
      const { person, client } = await add();
      for (const name of ['One', 'Two']) {
        expect((await client.post('/api/v1/auth/factors/totp', { name })).status).to.equal(201);
      }

      await people.addTotp(client, 'Three');

      expect(await onlyNotice(person)).to.include('Added: Three');
    });

    it('a person learns of a recovery code that was used, and how many are left', async () => {
      const { person, client } = await add();
      const { recoveryCodes } = await people.addTotp(client);
      const [first, second] = recoveryCodes;
      await eventually(() => texts(person).length === 1);

      const used = () => texts(person).filter(text => text.includes('Recovery codes that are'));

      const { challenge } = (await people.login(person)).body;
      const body = { challenge, recoveryCode: first };
      const response = await world.anonymous.post(verifyPath, body, from('203.0.113.9'));
      expect(response.status).to.equal(200);
      await eventually(() => used().length === 1);
      const verified = await client.post('/api/v1/auth/verify', {
        password: person.password,
        recoveryCode: second,
      });
      expect(verified.status).to.equal(200);

      await eventually(() => used().length === 2);
      const [login, proof] = used();
      expect(login).to.match(/^Subject: A recovery code of your account at .* was used/m);
      expect(login).to.include('UTC, network 203.0.113.9');
      expect(login).to.include('Recovery codes that are left: 9');
      expect(proof).to.include('UTC, network 127.0.0.1');
      expect(proof).to.include('Recovery codes that are left: 8');
      expect(login).to.not.include(first);
    });

    it('a person gets one notice of the fifth wrong code, at two processes too, and none of four and a right one', async () => {
      const second = await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1' });
      const urls = [world.url, second.url];
      const { person, client } = await add();
      const { secret } = await people.addTotp(client);
      await eventually(() => texts(person).length === 1);
      const send = async (code: string, i: number) => {
        const { challenge } = (await people.login(person, urls[i % 2])).body;
        const server = world.anonymous.at(urls[i % 2]!);
        return server.post(verifyPath, { challenge, code }, from(`192.0.2.${i}`));
      };

      await Promise.all([1, 2, 3, 4].map(i => send('000000', i)));
      expect((await send(people.code(secret), 5)).status).to.equal(200);
      await settled();
      expect(texts(person).filter(text => text.includes('Wrong codes'))).to.deep.equal([]);
      await Promise.all([6, 7, 8].map(i => send('000000', i)));

      const wrong = () => texts(person).filter(text => text.includes('Wrong codes'));
      await eventually(() => wrong().length > 0);
      await settled();
      expect(wrong()).to.have.length(1);
      expect(wrong()[0]).to.match(/Five codes .* were wrong\.\n.* UTC, network 192\.0\.2\.[678]\n/);
      expect(wrong()[0]).to.include('knows your password');
      await second.service.stop();
    });
  });

  describe('on rights', () => {
    it('a person learns of another role and scope, and of being disabled and enabled, by the API', async () => {
      const { person, userId, client } = await add();
      const stranger = await add(world.globex);
      const { Name: role } = await addRole(admin, ['full.read'], 'Night <i>shift</i>');
      const { firstName, lastName, role: former } = (await client.get('/api/v1/auth/me')).body;
      const names = { FirstName: firstName, LastName: lastName, Email: person.email };

      const put = await admin.put(`${usersPath}/${userId}`, {
        ...names,
        Role: role,
        Scope: 'Self',
      });
      expect(put.status, JSON.stringify(put.body)).to.equal(200);
      const same = await admin.put(`${usersPath}/${userId}`, {
        ...names,
        LastName: 'Newname',
        Role: role,
        Scope: 'Self',
      });
      expect(same.status).to.equal(200);
      await eventually(() => texts(person).length === 1);
      await admin.post(`${usersPath}/${userId}/disable`);
      await eventually(() => texts(person).length === 2);
      await admin.post(`${usersPath}/${userId}/enable`);

      await eventually(() => texts(person).length === 3);
      await settled();
      const [rights, disabled, enabled] = texts(person);
      expect(texts(person)).to.have.length(3);
      expect(rights).to.match(/^Subject: Your rights at .* were changed/m);
      expect(rights).to.match(
        new RegExp(
          `Before: ${former}, scope All\\nNow: Night i shift i, scope Self\\n.* UTC, by an administrator`,
        ),
      );
      expect(disabled).to.match(/Your account was disabled\. .*\n.* UTC, by an administrator/);
      expect(enabled).to.match(/Your account was enabled\. .*\n.* UTC, by an administrator/);
      for (const text of texts(person)) expect(text).to.include('#a-mail-on-your-account');
      expect(texts(stranger.person)).to.deep.equal([]);
    });

    it('a person learns of the same by the command line, and nothing of what is only tried', async () => {
      const { person } = await add();

      await command('user', 'disable', 'acme', person.email, '--dry-run');
      await command('user', 'role', 'acme', person.email, 'Member');
      await eventually(() => texts(person).length === 1);
      await command('user', 'disable', 'acme', person.email, '--yes');
      await eventually(() => texts(person).length === 2);
      await command('user', 'enable', 'acme', person.email);

      await eventually(() => texts(person).length === 3);
      await settled();
      const [rights, disabled, enabled] = texts(person);
      expect(texts(person)).to.have.length(3);
      expect(rights).to.match(/Now: Member, scope All\n.* UTC, by the operator of the service/);
      expect(disabled).to.include('Your account was disabled.');
      expect(enabled).to.include('Your account was enabled.');
    });

    it('a program gets no notice, nor does a person who is removed', async () => {
      const { person, client } = await add();
      await people.addTotp(client);
      await eventually(() => texts(person).length === 1);
      await settled();
      await forgetMails();
      const program = { Name: 'Till', Role: 'Member', Scope: 'All' };
      const { Id } = (await admin.post('/api/v1/Programs', program)).body;
      await admin.post(`/api/v1/Programs/${Id}/disable`);

      await command('user', 'remove', 'acme', person.email, '--yes');

      const rows = await controlSql(
        world,
        `select kind from account_notices where kind <> 'person_disabled'`,
      );
      expect(rows).to.deep.equal([]);
    });
  });

  describe('on logins from new networks', () => {
    const newNetworks = (person: Pick<Person, 'email'>) =>
      texts(person).filter(text => text.includes('from a new network'));

    it('a person gets one mail a day on new networks, and none of the first login or of neighbours', async () => {
      const { person } = await add();
      const other = await add(world.globex);
      // as after an invitation whose link was used long ago
      await controlSql(world, 'update users set last_login_at = null where email = ?', [
        person.email,
      ]);
      await controlSql(
        world,
        'delete from login_networks where user_id = (select id from users where email = ?)',
        [person.email],
      );

      await logIn(person, '192.0.2.1');
      await logIn(person, '192.0.77.8');
      await settled();
      expect(newNetworks(person)).to.deep.equal([]);

      await logIn(person, '203.0.113.5');
      await eventually(() => newNetworks(person).length === 1);
      expect(newNetworks(person)[0]).to.match(/ UTC, network 203\.0\.113\.5\n/);
      for (const address of ['203.0.99.1', '198.51.100.1', '2001:db8:1:2::3', '2001:db8:f::1']) {
        await logIn(person, address);
      }
      await settled();
      expect(newNetworks(person)).to.have.length(1);

      await controlSql(
        world,
        `update account_notices set created_at = created_at - interval '1 day'
          where kind = 'new_network'`,
      );
      await tryMailsNow(world);
      await eventually(() => newNetworks(person).length === 2);
      const second = newNetworks(person)[1];
      expect(second).to.include('network 198.51.100.1\n');
      expect(second).to.include('network 2001:db8:1:2::/64\n');
      expect(second).to.not.include('2001:db8:f');
      expect(second).to.not.include('203.0.');
      expect(newNetworks(other.person)).to.deep.equal([]);
    });

    it('a network from which nobody has logged in for 30 days is new again', async () => {
      const { person } = await add();
      await logIn(person, '192.0.2.1');
      await eventually(() => newNetworks(person).length === 1);
      await controlSql(
        world,
        `update login_networks set last_login_at = now() - interval '31 days'`,
      );
      await forgetMails();

      await logIn(person, '192.0.2.1');

      await eventually(() => newNetworks(person).length === 2);
    });

    it('a notice that gathers logins is neither late nor waiting', async () => {
      const { person } = await add();
      await logIn(person, '192.0.2.1');
      await eventually(() => newNetworks(person).length === 1);

      await logIn(person, '203.0.113.5');

      const [row] = await controlSql(
        world,
        `select count(*)::int as gathering from account_notices n join users u on u.id = n.user_id
          where u.email = ? and state = 'waiting' and n.created_at > now()`,
        [person.email],
      );
      expect(row).to.deep.equal({ gathering: 1 });
    });
  });

  it('a person gets ten notices of a kind in a day at most, and the tenth says so', async () => {
    const { person } = await add();
    const other = await add(world.globex);
    for (let i = 0; i < 12; i++) {
      await controlSql(world, 'update users set password_hash = ? where email = ?', [
        `hash ${i}`,
        person.email,
      ]);
    }
    await controlSql(world, `update users set password_hash = 'x' where email = ?`, [
      other.person.email,
    ]);

    await eventually(() => texts(person).length === 10);
    await onlyNotice(other.person);
    expect(texts(person)).to.have.length(10);
    expect(texts(person).map(text => text.includes('more are not sent'))).to.deep.equal([
      ...Array.from({ length: 9 }, () => false),
      true,
    ]);
  });

  it('an isolated tenant sends no notice, while another one does', async () => {
    const [isolated, other] = [await add(world.globex), await add()];
    await setIsolated(world, world.globex, true);

    try {
      for (const { person } of [isolated, other]) {
        await controlSql(world, `update users set password_hash = 'x' where email = ?`, [
          person.email,
        ]);
      }
      await onlyNotice(other.person);

      const rows = await controlSql(
        world,
        'select state, reason from account_notices where user_id = ?',
        [isolated.userId],
      );
      expect(rows).to.deep.equal([{ state: 'refused', reason: 'the tenant is isolated' }]);
      expect(texts(isolated.person)).to.deep.equal([]);
    } finally {
      await setIsolated(world, world.globex, false);
    }
  });

  describe('after a new password by a link', () => {
    const basic = (id: string, secret: string) => ({
      Authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
    });
    const legacy = (tenant: TestTenant) =>
      controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [tenant.id]);

    it('somebody who had the account for five minutes has no way in, and the API clients of others go on', async () => {
      const { service, url } = await world.startAnotherServer();
      const { person, client } = await add();
      const neighbour = await add();
      const tokens = { ...client.tokens! };
      await legacy(world.acme);
      const addTestClient = ({ email }: Person, name: string) =>
        addClient(world.installation, 'acme', email, name);
      const ended = await addTestClient(person, 'Price <list> of 2009');
      const other = await addTestClient(neighbour.person, 'Of a neighbour');
      const generate = ({ id, secret }: typeof ended, at: Client = world.anonymous) =>
        at.get(generatePath, basic(id, secret));
      await eventually(async () => (await generate(ended)).status === 200, announcedMs);
      const legacyToken = (await generate(ended)).body.token as string;
      const { secret } = await people.addTotp(client, 'Of the intruder');
      const { challenge } = (await people.login(person)).body;

      const password = await resetPassword(person);

      const servers = [world.anonymous, world.anonymous.at(url)];
      for (const server of servers) {
        const me = (token: string) => server.withToken(token).get('/api/v1/auth/me');
        await eventually(async () => (await me(tokens.accessToken)).status === 401, announcedMs);
        await eventually(async () => (await me(legacyToken)).status === 401, announcedMs);
        const refresh = { refreshToken: tokens.refreshToken };
        const header = people.header(world.acme);
        const refreshed = await server.post('/api/v1/auth/refresh', refresh, header);
        expect(refreshed.status).to.equal(401);
        const body = { challenge, code: people.code(secret) };
        expectProblem(await server.post(verifyPath, body, header), 401, 'invalid_challenge');
        expect((await generate(ended, server)).status).to.equal(401);
        expect((await generate(other, server)).status).to.equal(200);
      }
      const former = await people.login(person);
      expectProblem(former, 401, 'invalid_credentials');
      expectProblem(await people.login({ ...person, password }), 401, 'second_factor_required');
      await service.stop();
    });

    it('the administrators of the tenant learn which API clients have ended, and nobody else does', async () => {
      const { person } = await add();
      const globex = await add(world.globex);
      await legacy(world.acme);
      const { id, secret } = await addClient(
        world.installation,
        'acme',
        person.email,
        'Price <list> of 2009',
      );
      const ofClients = (email: string) =>
        mail.messagesTo(email).filter(({ content }) => content.includes('API clients of'));
      await settled();
      const before = ofClients(world.acme.admin.email).length;

      await resetPassword(person);
      await resetPassword(globex.person);
      await resetPassword(person);

      await eventually(() => ofClients(world.acme.admin.email).length > before);
      await settled();
      const mails = ofClients(world.acme.admin.email).slice(before);
      expect(mails).to.have.length(1);
      expect(mails[0]?.content).to.include('Price list of 2009');
      expect(mails[0]?.content).to.include(person.email);
      expect(mails[0]?.content).to.not.include(id);
      expect(mails[0]?.content).to.not.include(secret);
      expect(ofClients(world.globex.admin.email)).to.deep.equal([]);
      expect(ofClients(person.email)).to.deep.equal([]);
    });

    it('a password by the operator ends no API client', async () => {
      const { person } = await add();
      await legacy(world.acme);
      const { id } = await addClient(world.installation, 'acme', person.email, 'Goes on');
      await controlSql(world, `update users set password_hash = 'x' where email = ?`, [
        person.email,
      ]);
      await onlyNotice(person);

      const rows = await controlSql(
        world,
        'select from api_clients where id = ? and revoked_at is null',
        [id],
      );
      expect(rows).to.have.length(1);
    });
  });
});
