import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { linkIn, readable, startMailServer, tokenIn } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { sendRaw } from '../../support/raw-http.ts';
import { startSilentServer } from '../../support/silent-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant, type World } from '../../support/world.ts';
import { comparable } from './responses.ts';
import { addSampleUser, type SampleUser, withUsersHidden } from './sample-users.ts';
import { expectNotLogged, expectNotStored } from './secrets.ts';

const path = '/api/v1/auth/register';

describe('registration', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, MAIL_FROM: 'Acme <post@acme.test>' }));
  /** All passwords and tokens of these tests; the last test searches the log for them. */
  const secrets = new Set<string>();

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);
  });

  const newAddress = (): string => `new-${randomBytes(4).toString('hex')}@people.test`;
  const newRegistration = (changes: object = {}) => {
    const password = randomBytes(9).toString('hex');
    const body = {
      email: newAddress(),
      password,
      firstName: 'Nora',
      lastName: 'Newman',
      ...changes,
    };
    secrets.add(body.password);
    return body;
  };
  const register = (
    body: object,
    { as = world.anonymous, tenant = world.acme }: { as?: Client; tenant?: TestTenant } = {},
  ): Promise<ApiResponse> => as.post(path, body, { 'X-Tenant': tenant.guid });
  const confirm = (token: unknown, tenant = world.acme): Promise<ApiResponse> => {
    if (typeof token === 'string') secrets.add(token);
    return world.anonymous.post('/api/v1/auth/confirm', { token }, { 'X-Tenant': tenant.guid });
  };
  const login = (
    { email, password }: { email: string; password: string },
    tenant = world.acme,
  ): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/login', { email, password }, { 'X-Tenant': tenant.guid });
  const findUser = async (email: string, tenant = world.acme) =>
    (
      await controlSql<Record<string, unknown>>(
        world,
        `select u.*, r.name as role from users u join roles r on r.id = u.role_id where u.tenant_id = ? and email = ?`,
        [tenant.id, email],
      )
    )[0];
  /** Registers a new user and returns the registration with the token of its mail. */
  const registerUser = async (
    changes: object = {},
  ): Promise<ReturnType<typeof newRegistration> & { token: string }> => {
    const sent = newRegistration(changes);
    expect((await register(sent)).status).to.equal(202);
    const token = await mail.waitForToken(sent.email);
    secrets.add(token);
    return { ...sent, token };
  };

  it('a registered user is an unconfirmed Member with scope Self, whatever other fields the body has', async () => {
    const elevated = {
      role: 'Administrator',
      Role: 'Administrator',
      roleId: 1,
      scope: 'All',
      entityId: 7,
      EntityId: 7,
      permissions: ['full.manage'],
      tenantId: world.globex.id,
      tenantGuid: world.globex.guid,
      confirmed: true,
      confirmedAt: '2020-01-01T00:00:00Z',
      disabledAt: null,
      id: 1,
      guid: world.acme.guid,
      passwordHash: 'x',
    };

    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.globex.id,
    ]);
    const admin = await world.login(world.acme);

    for (const as of [world.anonymous, admin]) {
      const sent = await registerUser({ ...elevated, email: newAddress(), as: undefined });
      const again = newRegistration(elevated);
      const { status, body } = await register(again, { as });
      expect(status).to.equal(202);
      expect(body).to.deep.equal({ status: 'accepted' });
      await mail.waitForToken(again.email);

      for (const { email } of [sent, again]) {
        expect(await findUser(email)).to.include({
          role: 'Member',
          scope: 'Self',
          entity_id: null,
          confirmed_at: null,
          disabled_at: null,
          first_name: 'Nora',
          last_name: 'Newman',
        });
        expect(await findUser(email, world.globex)).to.equal(undefined);
      }
    }

    await controlSql(world, `update tenants set features = '{}' where id = ?`, [world.globex.id]);
  });

  it('a login before the address is confirmed gets the same response as a wrong password', async () => {
    const newUser = await registerUser();
    const wrong = comparable(await login({ ...newUser, password: 'a wrong password' }));
    expect(wrong.status).to.equal(401);
    expect(comparable(await login(newUser))).to.deep.equal(wrong);

    const { status, body } = await confirm(newUser.token);
    expect(status).to.equal(204);
    expect(body).to.equal('');

    const response = await login(newUser);
    expect(response.status).to.equal(200);

    const me = await world.anonymous.withToken(response.body.accessToken).get('/api/v1/auth/me');
    expect(me.body).to.include({
      firstName: 'Nora',
      lastName: 'Newman',
      role: 'Member',
      scope: 'Self',
    });
    expect(me.body.userEntityId).to.equal(null);
  });

  describe('registration in a tenant without selfRegistration', () => {
    const at = () => ({ tenant: world.globex });

    it('without selfRegistration, a registration without a token gets 401', async () => {
      const sent = newRegistration();
      const { status, body, headers } = await register(sent, at());
      expect(status).to.equal(401);
      expect(body.code).to.equal('unauthorized');
      expect(headers.get('www-authenticate')).to.equal('Bearer');
      expect(await findUser(sent.email, world.globex)).to.equal(undefined);
    });

    it('without selfRegistration, a registration requires users.manage; no other permission suffices', async () => {
      const sent = newRegistration();
      const as = await world.loginAs(world.globex, {
        permissions: ['users.read', 'users.write', 'full.manage'],
      });

      const { status, body, headers } = await register(sent, { as, ...at() });
      expect(status).to.equal(403);
      expect(body.code).to.equal('forbidden');
      expect(headers.get('www-authenticate')).to.equal(
        'Bearer error="insufficient_scope", scope="users.manage"',
      );
      expect(await findUser(sent.email, world.globex)).to.equal(undefined);
    });

    it('a caller with users.manage registers users in the tenant of the token, whatever X-Tenant names', async () => {
      const sent = newRegistration();
      const as = await world.login(world.globex);

      expect((await register(sent, { as, tenant: world.acme })).status).to.equal(202);
      const token = await mail.waitForToken(sent.email);

      expect(await findUser(sent.email, world.globex)).to.include({
        role: 'Member',
        scope: 'Self',
        confirmed_at: null,
      });
      expect(await findUser(sent.email)).to.equal(undefined);
      expect((await confirm(token, world.globex)).status).to.equal(204);
      expect((await login(sent, world.globex)).status).to.equal(200);
    });

    it('a registration with an invalid token gets 401, with and without selfRegistration', async () => {
      const as = world.anonymous.withToken('a.b.c');
      for (const tenant of [world.acme, world.globex]) {
        const { status, body } = await register(newRegistration(), { as, tenant });
        expect(status).to.equal(401);
        expect(body.code).to.equal('invalid_token');
      }
    });
  });

  describe('secrecy of registered addresses', () => {
    let known: SampleUser;
    let disabled: SampleUser;
    let foreign: SampleUser;

    before(async () => {
      known = await addSampleUser(world, world.acme);
      disabled = await addSampleUser(world, world.acme);
      foreign = await addSampleUser(world, world.globex);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [disabled.id]);
      for (const { password } of [known, disabled, foreign]) secrets.add(password);
    });

    it('the response to a registration is the same for new, known, unconfirmed and disabled addresses', async () => {
      const unconfirmed = await registerUser();
      const disabledUnconfirmed = await registerUser();
      await controlSql(world, 'update users set disabled_at = now() where email = ?', [
        disabledUnconfirmed.email,
      ]);

      const addresses = {
        new: newAddress(),
        known: known.email,
        'known, in capitals': `  ${known.email.toUpperCase()} `,
        unconfirmed: unconfirmed.email,
        disabled: disabled.email,
        'disabled and unconfirmed': disabledUnconfirmed.email,
        'known elsewhere': foreign.email,
      };

      const before = await controlSql(world, 'select * from users where id in (?, ?) order by id', [
        known.id,
        disabled.id,
      ]);
      const mailsBefore = mail.messages.length;

      const responses: Record<string, unknown> = {};
      for (const [kind, email] of Object.entries(addresses)) {
        responses[kind] = comparable(
          await register(newRegistration({ email, firstName: 'Mallory' })),
        );
      }
      await mailsSettled(world);

      for (const [kind, response] of Object.entries(responses)) {
        expect(response, kind).to.deep.equal(responses.new);
      }
      expect(responses.new).to.include({
        status: 202,
        body: JSON.stringify({ status: 'accepted', traceId: 'undefined' }),
      });

      const mailed = mail.messages.slice(mailsBefore);
      const confirming = mailed.filter(({ content }) => readable(content).includes('/confirm?'));
      expect(confirming.flatMap(({ to }) => to).sort()).to.deep.equal(
        [addresses.new, foreign.email, unconfirmed.email].sort(),
      );
      const others = mailed.filter(each => !confirming.includes(each)).flatMap(({ to }) => to);
      // The second mail to the known address takes the place of the first one while that waits.
      expect([...new Set(others)].sort(), 'mails that confirm nothing').to.deep.equal(
        [known.email, disabled.email, disabledUnconfirmed.email].sort(),
      );
      const after = await controlSql(world, 'select * from users where id in (?, ?) order by id', [
        known.id,
        disabled.id,
      ]);
      expect(after, 'existing users are unchanged').to.deep.equal(before);

      expect((await login(known)).status).to.equal(200);
    });

    it('a registration is accepted after one password hash, before the service looks the address up', async () => {
      const unknown = newAddress();
      await withUsersHidden(world, async () => {
        for (const email of [unknown, known.email]) {
          const before = world.passwords.usage.hashed;
          expect((await register(newRegistration({ email }))).status).to.equal(202);
          expect(world.passwords.usage.hashed - before, email).to.equal(1);
        }
      });
      secrets.add(await mail.waitForToken(unknown));
    });

    it('an address that looks like a known one is a separate user, whose mail goes to that address only', async () => {
      const kim = await addSampleUser(world, world.acme, { email: 'kim@acme.test' });
      secrets.add(kim.password);

      const lookAlikes = [
        '\u212aim@acme.test',
        'k\u0131m@acme.test',
        '\uff4bim@acme.test',
        '(to)kim@acme.test',
      ];

      for (const email of lookAlikes) {
        expect((await register(newRegistration({ email }))).status).to.equal(202);
      }
      await mailsSettled(world);

      expect(
        mail.messages.filter(({ to }) => to.some(address => /kim@/i.test(address))),
      ).to.deep.equal(mail.messagesTo('(to)kim@acme.test'));

      for (const email of lookAlikes) {
        expect(await findUser(email), email).to.include({ confirmed_at: null });
      }
      expect((await login(kim)).status).to.equal(200);
    });
  });

  for (const [order, attackerFirst] of [
    ['before', true],
    ['after', false],
  ] as const) {
    it(`an attacker who registers an address ${order} its owner cannot choose the owner's password`, async () => {
      const email = newAddress();
      const owner = newRegistration({ email, firstName: 'Olga', lastName: 'Owner' });
      const attacker = newRegistration({ email: email.toUpperCase(), firstName: 'Mallory' });
      const tokens: string[] = [];

      for (const [index, body] of (attackerFirst
        ? [attacker, owner]
        : [owner, attacker]
      ).entries()) {
        expect((await register(body)).status).to.equal(202);
        tokens.push(await mail.waitForToken(email, index + 1));
      }

      const [ownersToken, attackersToken] = attackerFirst ? tokens.toReversed() : tokens;
      expect(ownersToken).to.not.equal(attackersToken);

      expect((await confirm(ownersToken)).status).to.equal(204);
      expect((await login({ ...attacker, email })).status, 'the password of the attacker').to.equal(
        401,
      );
      expect((await login(owner)).status, 'the password of the owner').to.equal(200);
      expect(await findUser(email)).to.include({ first_name: 'Olga', last_name: 'Owner' });

      expect(
        (await confirm(attackersToken)).status,
        'the other token, after the address is confirmed',
      ).to.equal(400);
      expect((await login(owner)).status).to.equal(200);
    });
  }

  it('ten concurrent registrations of one address create one user, and only one token confirms it', async () => {
    const email = newAddress();
    const responses = await Promise.all(
      Array.from({ length: 10 }, () => register(newRegistration({ email }))),
    );
    await mailsSettled(world);

    expect(new Set(responses.map(({ status }) => status))).to.deep.equal(new Set([202]));
    const rows = await controlSql(world, 'select * from users where email = ?', [email]);
    expect(rows).to.have.length(1);

    const tokens = mail.messagesTo(email).map(({ content }) => tokenIn(content) ?? '');
    expect(tokens.length).to.be.within(1, 10);
    const confirmed = await Promise.all(tokens.map(token => confirm(token)));
    expect(confirmed.filter(({ status }) => status === 204)).to.have.length(1);
  });

  describe('mail of a registration', () => {
    it('the mail has the configured sender in the name of the tenant, one recipient, and a link to the page that confirms', async () => {
      const newUser = await registerUser();
      const [message] = mail.messagesTo(newUser.email);
      expect(message).to.include({ from: 'post@acme.test' });
      expect(message?.content).to.match(/^From: acme Ltd <post@acme\.test>\r$/m);
      expect(message?.content).to.match(/^Subject: Confirm your address for acme Ltd\r$/m);
      const page = `http://backoffice.test/confirm?tenant=${world.acme.guid}&token=`;
      expect(linkIn(message?.content)?.startsWith(page)).to.equal(true);
      expect(message?.content).to.not.include(newUser.password);
      expect(message?.content).to.not.include(world.acme.database);
    });

    it('the mail of a registration contains nothing from the headers of the request', async () => {
      const body = JSON.stringify(newRegistration());
      const { email } = JSON.parse(body) as { email: string };
      const head = [
        `POST ${path} HTTP/1.1`,
        'Host: evil.test',
        'X-Forwarded-Host: evil.test',
        'X-Forwarded-Proto: gopher',
        'Forwarded: host=evil.test;proto=gopher',
        'Origin: http://evil.test',
        'Referer: http://evil.test/',
        `X-Tenant: ${world.acme.guid}`,
        'Content-Type: application/json',
        `Content-Length: ${body.length}`,
      ];

      const { statuses } = await sendRaw(world.url, `${head.join('\r\n')}\r\n\r\n${body}`, {
        until: /accepted/,
      });
      expect(statuses).to.deep.equal([202]);
      await mail.waitForToken(email);

      const [message] = mail.messagesTo(email);
      expect(message?.content)
        .to.include('http://backoffice.test/')
        .and.not.match(/evil|gopher/);
    });

    it('an address that could add or change recipients of the mail is rejected with 400', async () => {
      const hostile = [
        'a@b.test,victim@people.test',
        'a@b.test;victim@people.test',
        'a@b.test\r\nBcc: victim@people.test',
        'a@b.test\nvictim@people.test',
        'Victim <victim@people.test>',
        '"x" victim@people.test',
        'group:victim@people.test;',
        'victim@people.test>',
        '<victim@people.test',
        'a b@people.test',
        '@people.test',
        'people.test',
        'a@@people.test',
        'a@b@people.test',
        `${'x'.repeat(250)}@b.test`,
      ];

      for (const email of hostile) {
        const { status, body } = await register(newRegistration({ email }));
        expect(status, email).to.equal(400);
        expect(Object.keys(body.errors ?? {}), email).to.deep.equal(['email']);
        expect(JSON.stringify(body)).to.not.include('victim');
      }

      expect(mail.messages.filter(({ to }) => to.includes('victim@people.test'))).to.deep.equal([]);
    });

    /**
     * Lets people register themselves with a tenant of another world, and returns what
     * registers there.
     */
    const registerAt = async (other: World) => {
      await controlSql(other, `update tenants set features = '{selfRegistration}' where id = ?`, [
        other.acme.id,
      ]);
      // The service notices the feature a moment later, and refuses until then.
      return (body: object) =>
        eventually(async () => {
          const response = await other.anonymous.post(path, body, { 'X-Tenant': other.acme.guid });
          return response.status !== 401 && response;
        });
    };

    it('a registration does not wait for an unreachable mail server, and the log has no token', async () => {
      const away = await createWorld({ SMTP_URL: 'smtp://127.0.0.1:1' });
      try {
        const registerAway = await registerAt(away);
        const startedAt = performance.now();

        expect((await registerAway(newRegistration())).status).to.equal(202);

        // the time limits of a mail are minutes
        expect(performance.now() - startedAt).to.be.below(20_000);
        const failure = await eventually(() =>
          away.logs.find(line => line.includes('mail_failed')),
        );
        expect(JSON.parse(failure)).to.include({ kind: 'registration', level: 40 });
        expect(away.logs.join('')).to.not.match(/[\w-]{43}(?![\w-])/);
      } finally {
        await away.close();
      }
    });

    it('neither a registration nor any other request waits for a mail server that is silent', async () => {
      const silent = await startSilentServer();
      const away = await createWorld({ SMTP_URL: `smtp://127.0.0.1:${silent.port}` });

      try {
        const registerAway = await registerAt(away);
        const startedAt = performance.now();

        const responses = await Promise.all(
          Array.from({ length: 10 }, () => registerAway(newRegistration())),
        );
        const me = await (await away.login(away.acme)).get('/api/v1/auth/me');

        const ms = performance.now() - startedAt;
        expect([...responses, me].map(({ status }) => status)).to.deep.equal([
          ...Array(10).fill(202),
          200,
        ]);
        expect(ms).to.be.below(20_000); // the time limits of a mail are minutes
        console.log(`      10 registrations and one other request: ${ms.toFixed(0)} ms`);
        await eventually(() => silent.accepted === 3);
      } finally {
        await away.close();
        await silent.close();
      }
    });

    it('without SMTP_URL, the mail is written to a private file; the log has its path, not its token', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'backoffice-mail-'));
      const local = await createWorld({ SMTP_URL: '', DATA_DIR: folder });
      try {
        const sent = newRegistration();
        expect((await (await registerAt(local))(sent)).status).to.equal(202);
        await mailsSettled(local);

        const files = await readdir(join(folder, 'mail'));
        expect(files).to.have.length(1);
        expect(files[0]).to.match(/\.eml$/);
        const file = join(folder, 'mail', files[0] ?? '');
        const content = await readFile(file, 'utf8');
        expect(content).to.match(new RegExp(`^To: ${sent.email}\r$`, 'm'));
        expect((await stat(file)).mode & 0o077).to.equal(0);
        expect((await stat(join(folder, 'mail'))).mode & 0o077).to.equal(0);

        const written = local.logs
          .map(line => JSON.parse(line))
          .find(({ event }) => event === 'mail_written');
        expect(written).to.include({ file });
        const token = tokenIn(content) ?? '';
        expect(local.logs.join('')).to.not.include(token);
        const headers = { 'X-Tenant': local.acme.guid };
        expect(
          (await local.anonymous.post('/api/v1/auth/confirm', { token }, headers)).status,
        ).to.equal(204);
      } finally {
        await local.close();
        await rm(folder, { recursive: true });
      }
    });
  });

  describe('registration token', () => {
    it('the registration token is in the mail only; the control database stores its hash', async () => {
      const { token } = await registerUser();
      await expectNotStored(world, [token]);
    });

    it('a registration token confirms an address once', async () => {
      const { token, email } = await registerUser();
      expect((await confirm(token)).status).to.equal(204);
      const { confirmed_at } = (await findUser(email)) ?? {};

      const { status, body } = await confirm(token);
      expect(status).to.equal(400);
      expect(body.code).to.equal('validation_failed');
      expect(Object.keys(body.errors)).to.deep.equal(['token']);
      expect((await findUser(email))?.confirmed_at).to.deep.equal(confirmed_at);

      const [row] = await controlSql<{ count: string }>(
        world,
        `select count(*) from registrations join mail_deliveries d on d.id = delivery_id join users u on u.id = d.user_id
          where email = ?`,
        [email],
      );
      expect(row?.count).to.equal('0');
    });

    it('of ten concurrent uses of a registration token, exactly one confirms the address', async () => {
      for (let round = 0; round < 5; round++) {
        const { token } = await registerUser();
        const responses = await Promise.all(Array.from({ length: 10 }, () => confirm(token)));
        expect(responses.map(({ status }) => status).sort()).to.deep.equal([
          204,
          ...Array(9).fill(400),
        ]);
      }
    });

    it('a registration token expires after 24 hours, and an expired one looks like an unknown one', async () => {
      const [late, inTime] = [await registerUser(), await registerUser()];
      const makeOlder = (email: string, by: string) =>
        controlSql(
          world,
          `update mail_deliveries set expires_at = expires_at - ?::interval
            where user_id = (select id from users where email = ?)`,
          [by, email],
        );

      await makeOlder(late.email, '24 hours');
      await makeOlder(inTime.email, '23:59:30');

      const rejected = await confirm(late.token);
      expect(rejected.status).to.equal(400);
      expect((await findUser(late.email))?.confirmed_at).to.equal(null);
      expect((await confirm(inTime.token)).status).to.equal(204);
      expect(comparable(await confirm('x')), 'an unknown token').to.deep.equal(
        comparable(rejected),
      );
    });

    it('a registration token works only unchanged, in its tenant and for confirmation', async () => {
      const { token, email } = await registerUser();
      const reset = (newPassword: string) =>
        world.anonymous.post(
          '/api/v1/auth/reset-password',
          { token, newPassword },
          { 'X-Tenant': world.acme.guid },
        );

      expect((await confirm(token, world.globex)).status, 'another tenant').to.equal(400);
      expect((await reset('another password')).status, 'another purpose').to.equal(400);

      const others = [...token].map(
        (character, at) =>
          token.slice(0, at) + (character === 'A' ? 'B' : 'A') + token.slice(at + 1),
      );
      others.push(
        token.slice(1),
        token.slice(0, -1),
        `${token}A`,
        ` ${token}`,
        `${token}=`,
        token.toLowerCase(),
      );

      const responses = await Promise.all(others.map(other => confirm(other)));
      expect(new Set(responses.map(({ status }) => status))).to.deep.equal(new Set([400]));
      expect((await findUser(email))?.confirmed_at).to.equal(null);
      expect((await confirm(token)).status).to.equal(204);
    });

    it('the response to a malformed registration token is 400 and names the field token', async () => {
      for (const token of [
        undefined,
        null,
        7,
        '',
        ['x'],
        {},
        true,
        'x'.repeat(5_000),
        '\0',
        '\ud800',
      ]) {
        const { status, body } = await confirm(token);

        expect(status, JSON.stringify(token)).to.equal(400);
        expect(Object.keys(body.errors), JSON.stringify(token)).to.deep.equal(['token']);
      }
    });
  });

  describe('rules for passwords', () => {
    /**
     * Registers with this password; returns 'accepted' or the message of the validation error.
     */
    const tryPassword = async (password: unknown): Promise<string> => {
      const { status, body } = await register(newRegistration({ password: password as string }));
      if (status === 202) return 'accepted';
      expect(status).to.equal(400);
      expect(body.code).to.equal('validation_failed');
      expect(Object.keys(body.errors)).to.deep.equal(['password']);
      return body.errors.password[0];
    };
    const letters = (count: number): string =>
      Array.from({ length: count }, (_, i) => 'q7w8z3rtk'.charAt((i * i) % 9)).join('');
    const keys = (count: number): string =>
      Array.from({ length: count }, (_, i) => String.fromCodePoint(0x1f511 + ((i * 7) % 26))).join(
        '',
      );

    it('a new password has 15 to 128 characters, however many bytes each character has', async () => {
      for (const good of ['q7w8z3rtq7w8z3r', 'x'.repeat(64) + letters(64), keys(15), keys(128)]) {
        expect(await tryPassword(good), good).to.equal('accepted');
      }
      for (const short of ['q7w8z3rtq7w8z3', keys(14), 'e\u0301'.repeat(14)]) {
        expect(await tryPassword(short)).to.include('at least 15');
      }
      for (const long of [keys(129), `${letters(128)}a`]) {
        expect(await tryPassword(long)).to.include('at most 128');
      }
    });

    it('a password with a control character or half a character is rejected', async () => {
      for (const sign of ['\0', '\n', '\u007f']) {
        expect(await tryPassword(`q7w8z3rtq7w8z3r${sign}`)).to.include('control');
      }
      expect(await tryPassword('q7w8z3rtq7w8z3r\ud800')).to.include('well-formed');
    });

    it('a common password is rejected, also with other capitals, other letter forms or added digits', async () => {
      const common = [
        'passwordpassword',
        'PasswordPassword',
        'PASSWORD12345678',
        'Dragon-2026-11-29!',
        '123456789012345',
        'qwertyuiop12345',
        'abcdefghijklmnop',
        'a'.repeat(15),
        'abc'.repeat(5),
      ];
      common.push(
        `${'\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44'}12345678`,
        '\u{1f511}'.repeat(15),
        ' '.repeat(15),
      );

      for (const password of common) {
        expect(await tryPassword(password), password).to.include('common');
      }
      for (const password of [undefined, null, 7, ['long enough'], { length: 12 }]) {
        expect((await register({ ...newRegistration(), password })).status).to.equal(400);
      }
    });

    it('a password of nothing but words of the account, digits and signs is rejected', async () => {
      const person = {
        email: `berta.${randomBytes(4).toString('hex')}@vandermeer.test`,
        firstName: 'Annelotte',
        lastName: 'van der Meer',
      };

      for (const password of [
        'annelotte123456',
        'VanDerMeer-2026!!',
        'Annelotte van der Meer',
        'berta@vandermeer.test',
        `${world.acme.slug} Ltd!2026-11`,
        'Back-Office 2026 #1',
      ]) {
        const { status, body } = await register(newRegistration({ ...person, password }));

        expect(status, password).to.equal(400);
        expect(body.errorCodes, password).to.deep.equal({ password: [{ code: 'own_words' }] });
      }

      const password = 'annelotte rides north';
      expect((await register(newRegistration({ ...person, password }))).status).to.equal(202);
    });

    it('a password needs no capitals, digits or signs', async () => {
      for (const password of ['correct horse battery', 'weathervanespinning', '739274619308514']) {
        expect(await tryPassword(password), password).to.equal('accepted');
      }
    });

    it('a password matches in every Unicode form of the same text, and each space and byte of it counts', async () => {
      const password = ` caf\u00e9 \ufb01ne ${'y'.repeat(72)}`;
      const newUser = await registerUser({ password });
      expect((await confirm(newUser.token)).status).to.equal(204);
      const loginStatus = async (other: string) =>
        (await login({ ...newUser, password: other })).status;
      expect(await loginStatus(` cafe\u0301 fine ${'y'.repeat(72)}`)).to.equal(200);
      expect(await loginStatus(password.trim())).to.equal(401);
      expect(await loginStatus(`${password} `)).to.equal(401);
      expect(await loginStatus(`${password.slice(0, -1)}z`)).to.equal(401);
    });
  });

  it('the response to an invalid registration names every invalid field', async () => {
    const cases: [object, string[]][] = [
      [{}, ['email', 'firstName', 'lastName', 'password']],
      [
        { email: 'x', password: 'short', firstName: ' ', lastName: '' },
        ['email', 'firstName', 'lastName', 'password'],
      ],
      [{ ...newRegistration(), firstName: 'x'.repeat(256) }, ['firstName']],
      [{ ...newRegistration(), lastName: 'a\0b' }, ['lastName']],
      [{ ...newRegistration(), firstName: 7, lastName: ['x'] }, ['firstName', 'lastName']],
      [{ ...newRegistration(), email: { $ne: null } }, ['email']],
    ];

    for (const [body, fields] of cases) {
      const response = await register(body);
      expect(response.status).to.equal(400);
      expect(Object.keys(response.body.errors).sort()).to.deep.equal(fields);
      expect(response.headers.get('cache-control')).to.equal('no-store');
    }
  });

  // In a group of its own, because Mocha runs the tests outside a group first.
  describe('log of registrations', () => {
    it('no log line of a registration contains a password or token', async () => {
      const user = await registerUser();
      expect((await confirm(user.token)).status).to.equal(204);
      // Common passwords are also English words, which the log may contain.
      const distinct = [...secrets].filter(
        secret => typeof secret === 'string' && /^(?=.*\d).{12,}$/.test(secret),
      );
      expectNotLogged(world, distinct);
    });
  });
});
