import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { type MailServer, startMailServer, tokenIn } from '../support/mail-server.ts';
import { sendRaw } from '../support/raw-http.ts';
import { createWorld, type TestTenant, type World } from '../support/world.ts';
import { comparable } from './responses.ts';
import { addSampleUser, controlSql, type SampleUser, withUsersLocked } from './sample-users.ts';
import { expectNotLogged, expectNotStored } from './secrets.ts';

const path = '/api/v1/auth/register';

describe('Registration', () => {
  let mail: MailServer;
  let world: World;
  /** Passwords and tokens that were used, to be looked for in the log. */
  const secrets = new Set<string>();

  before(async () => {
    mail = await startMailServer();
    world = await createWorld({ SMTP_URL: mail.url, MAIL_FROM: 'Acme <post@acme.test>' });
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [world.acme.id]);
  });
  after(async () => {
    await world.close();
    await mail.close();
  });

  const newAddress = (): string => `new-${randomBytes(4).toString('hex')}@people.test`;
  const form = (changes: object = {}) => {
    const password = randomBytes(9).toString('hex');
    const all = { email: newAddress(), password, firstName: 'Nora', lastName: 'Newman', ...changes };
    secrets.add(all.password);
    return all;
  };
  const register = (
    body: object,
    { as = world.anonymous, tenant = world.acme }: { as?: Client; tenant?: TestTenant } = {},
  ): Promise<ApiResponse> => as.post(path, body, { 'X-Tenant': tenant.guid });
  const confirm = (token: unknown, tenant = world.acme): Promise<ApiResponse> => {
    if (typeof token === 'string') secrets.add(token);
    return world.anonymous.post('/api/v1/auth/confirm', { token }, { 'X-Tenant': tenant.guid });
  };
  const login = ({ email, password }: { email: string; password: string }, tenant = world.acme): Promise<ApiResponse> =>
    world.anonymous.post('/api/v1/auth/login', { email, password }, { 'X-Tenant': tenant.guid });
  const user = async (email: string, tenant = world.acme) =>
    (
      await controlSql<Record<string, unknown>>(
        world,
        `select u.*, r.name as role from users u join roles r on r.id = u.role_id where u.tenant_id = ? and email = ?`,
        [tenant.id, email],
      )
    )[0];
  /** Registers, and waits for the token. */
  const registered = async (changes: object = {}): Promise<ReturnType<typeof form> & { token: string }> => {
    const sent = form(changes);
    expect((await register(sent)).status).to.equal(202);
    const token = await mail.waitForToken(sent.email);
    secrets.add(token);
    return { ...sent, token };
  };

  /** Runs on a process of its own, which ends when all that was begun there is done. */
  async function toTheEnd<Result>(
    environment: Record<string, string>,
    call: (as: Client) => Promise<Result>,
  ): Promise<Result> {
    const { service, url } = await world.startAnotherServer(environment);
    const result = await call(world.anonymous.at(url));
    await service.stop();
    return result;
  }

  it('makes an unconfirmed Member who reaches only their own, whatever else is sent', async () => {
    const wished = {
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
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [world.globex.id]);
    const admin = await world.login(world.acme);
    for (const as of [world.anonymous, admin]) {
      const sent = await registered({ ...wished, email: newAddress(), as: undefined });
      const again = form(wished);
      const { status, body } = await register(again, { as });
      expect([status, body]).to.deep.equal([202, { status: 'accepted' }]);
      await mail.waitForToken(again.email);
      for (const { email } of [sent, again]) {
        expect(await user(email)).to.include({
          role: 'Member',
          scope: 'Self',
          entity_id: null,
          confirmed_at: null,
          disabled_at: null,
          first_name: 'Nora',
          last_name: 'Newman',
        });
        expect(await user(email, world.globex)).to.equal(undefined);
      }
    }
    await controlSql(world, `update tenants set features = '{}' where id = ?`, [world.globex.id]);
  });

  it('lets nobody log in before the address is confirmed, and says no more than for a wrong password', async () => {
    const person = await registered();
    const wrong = comparable(await login({ ...person, password: 'a wrong password' }));
    expect(wrong.status).to.equal(401);
    expect(comparable(await login(person))).to.deep.equal(wrong);
    const { status, body } = await confirm(person.token);
    expect([status, body]).to.deep.equal([204, '']);
    const answer = await login(person);
    expect(answer.status).to.equal(200);
    const me = await world.anonymous.withToken(answer.body.accessToken).get('/api/v1/auth/me');
    expect(me.body).to.include({ firstName: 'Nora', lastName: 'Newman', role: 'Member', scope: 'Self' });
    expect(me.body.userEntityId).to.equal(null);
  });

  describe('without the feature selfRegistration', () => {
    const at = () => ({ tenant: world.globex });

    it('asks for a token', async () => {
      const sent = form();
      const { status, body, headers } = await register(sent, at());
      expect([status, body.code, headers.get('www-authenticate')]).to.deep.equal([401, 'unauthorized', 'Bearer']);
      expect(await user(sent.email, world.globex)).to.equal(undefined);
    });

    it('asks for the permission users.manage, which no other implies', async () => {
      const sent = form();
      const as = await world.loginAs(world.globex, { permissions: ['users.read', 'users.write', 'full.manage'] });
      const { status, body, headers } = await register(sent, { as, ...at() });
      expect([status, body.code]).to.deep.equal([403, 'forbidden']);
      expect(headers.get('www-authenticate')).to.equal('Bearer error="insufficient_scope", scope="users.manage"');
      expect(await user(sent.email, world.globex)).to.equal(undefined);
    });

    it('is done by those who have it, in the tenant of their token, whatever X-Tenant says', async () => {
      const sent = form();
      const as = await world.loginAs(world.globex, { permissions: ['users.manage'] });
      expect((await register(sent, { as, tenant: world.acme })).status).to.equal(202);
      const token = await mail.waitForToken(sent.email);
      expect(await user(sent.email, world.globex)).to.include({ role: 'Member', scope: 'Self', confirmed_at: null });
      expect(await user(sent.email)).to.equal(undefined);
      expect((await confirm(token, world.globex)).status).to.equal(204);
      expect((await login(sent, world.globex)).status).to.equal(200);
    });

    it('is refused to a token that is not good, also where anybody may register', async () => {
      const as = world.anonymous.withToken('a.b.c');
      for (const tenant of [world.acme, world.globex]) {
        const { status, body } = await register(form(), { as, tenant });
        expect([status, body.code]).to.deep.equal([401, 'invalid_token']);
      }
    });
  });

  describe('tells nobody whether an address is known', () => {
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

    it('by its answer: the same for new, known, unconfirmed and disabled ones', async () => {
      const unconfirmed = await registered();
      const disabledUnconfirmed = await registered();
      await controlSql(world, 'update users set disabled_at = now() where email = ?', [disabledUnconfirmed.email]);
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
      const letters = mail.messages.length;
      const answers = await toTheEnd({}, async as => {
        const found: Record<string, unknown> = {};
        for (const [kind, email] of Object.entries(addresses))
          found[kind] = comparable(await register(form({ email, firstName: 'Mallory' }), { as }));
        return found;
      });
      for (const [kind, answer] of Object.entries(answers)) expect(answer, kind).to.deep.equal(answers.new);
      expect(answers.new).to.include({
        status: 202,
        body: JSON.stringify({ status: 'accepted', traceId: 'undefined' }),
      });
      // All that was begun has ended: whoever has no mail gets none.
      const reached = mail.messages.slice(letters).flatMap(({ to }) => to);
      expect(reached.sort()).to.deep.equal([addresses.new, foreign.email, unconfirmed.email].sort());
      const after = await controlSql(world, 'select * from users where id in (?, ?) order by id', [
        known.id,
        disabled.id,
      ]);
      expect(after, 'who was there is unchanged').to.deep.equal(before);
      expect((await login(known)).status).to.equal(200);
    });

    it('by its time: it is given after one password was hashed, before anybody has looked', async () => {
      const unheard = newAddress();
      await withUsersLocked(world, async () => {
        for (const email of [unheard, known.email]) {
          const before = world.passwords.usage.hashed;
          expect((await register(form({ email }))).status).to.equal(202);
          expect(world.passwords.usage.hashed - before, email).to.equal(1);
        }
      });
      secrets.add(await mail.waitForToken(unheard));
    });

    it('by a look-alike: its mail goes to itself alone, and it is another user', async () => {
      const kim = await addSampleUser(world, world.acme, { email: 'kim@acme.test' });
      secrets.add(kim.password);
      const lookAlikes = ['\u212aim@acme.test', 'k\u0131m@acme.test', '\uff4bim@acme.test', '(to)kim@acme.test'];
      await toTheEnd({}, async as => {
        for (const email of lookAlikes) expect((await register(form({ email }), { as })).status).to.equal(202);
      });
      expect(mail.messages.filter(({ to }) => to.some(address => /kim@/i.test(address)))).to.deep.equal(
        mail.messagesTo('(to)kim@acme.test'),
      );
      for (const email of lookAlikes) expect(await user(email), email).to.include({ confirmed_at: null });
      expect((await login(kim)).status).to.equal(200);
    });
  });

  for (const [order, attackerFirst] of [
    ['before', true],
    ['after', false],
  ] as const) {
    it(`whoever registers an address ${order} its owner does not choose the password that the owner confirms`, async () => {
      const email = newAddress();
      const owner = form({ email, firstName: 'Olga', lastName: 'Owner' });
      const attacker = form({ email: email.toUpperCase(), firstName: 'Mallory' });
      const tokens: string[] = [];
      for (const [index, body] of (attackerFirst ? [attacker, owner] : [owner, attacker]).entries()) {
        expect((await register(body)).status).to.equal(202);
        tokens.push(await mail.waitForToken(email, index + 1));
      }
      const [ownersToken, attackersToken] = attackerFirst ? tokens.toReversed() : tokens;
      expect(ownersToken).to.not.equal(attackersToken);
      expect((await confirm(ownersToken)).status).to.equal(204);
      expect((await login({ ...attacker, email })).status, 'the password of the attacker').to.equal(401);
      expect((await login(owner)).status, 'the password of the owner').to.equal(200);
      expect(await user(email)).to.include({ first_name: 'Olga', last_name: 'Owner' });
      expect((await confirm(attackersToken)).status, 'the other token, after the address is confirmed').to.equal(400);
      expect((await login(owner)).status).to.equal(200);
    });
  }

  it('ten registrations of one address at once make one user, whom exactly one of the tokens confirms', async () => {
    const email = newAddress();
    const answers = await toTheEnd({}, as =>
      Promise.all(Array.from({ length: 10 }, () => register(form({ email }), { as }))),
    );
    expect(new Set(answers.map(({ status }) => status))).to.deep.equal(new Set([202]));
    const rows = await controlSql(world, 'select * from users where email = ?', [email]);
    expect(rows).to.have.length(1);
    const tokens = mail.messagesTo(email).map(({ content }) => tokenIn(content) ?? '');
    expect(tokens.length).to.be.within(1, 10);
    const confirmed = await Promise.all(tokens.map(token => confirm(token)));
    expect(confirmed.filter(({ status }) => status === 204)).to.have.length(1);
  });

  describe('sends a mail', () => {
    it('from the configured sender to the one address, with the token and where to send it', async () => {
      const person = await registered();
      const [letter] = mail.messagesTo(person.email);
      expect(letter).to.include({ from: 'post@acme.test' });
      expect(letter?.content).to.match(/^From: Acme <post@acme\.test>\r$/m);
      expect(letter?.content).to.match(/^Subject: Confirm your address for acme Ltd\r$/m);
      expect(letter?.content).to.match(/^http:\/\/backoffice\.test\/api\/v1\/auth\/confirm\r$/m);
      expect(letter?.content).to.not.include(person.password);
      expect(letter?.content).to.not.include(world.acme.database);
    });

    it('in which nothing stands that the request’s headers say', async () => {
      const body = JSON.stringify(form());
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
      const { statuses } = await sendRaw(world.url, `${head.join('\r\n')}\r\n\r\n${body}`, { until: /accepted/ });
      expect(statuses).to.deep.equal([202]);
      await mail.waitForToken(email);
      const [letter] = mail.messagesTo(email);
      expect(letter?.content)
        .to.include('http://backoffice.test/')
        .and.not.match(/evil|gopher/);
    });

    it('that no address can turn into another, or into more', async () => {
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
        const { status, body } = await register(form({ email }));
        expect([status, Object.keys(body.errors ?? {})], email).to.deep.equal([400, ['email']]);
        expect(JSON.stringify(body)).to.not.include('victim');
      }
      expect(mail.messages.filter(({ to }) => to.includes('victim@people.test'))).to.deep.equal([]);
    });

    it('and answers at once also when the server for mail is away, whose failure is in the log without the token', async () => {
      const logged = world.logs.length;
      const sent = form();
      const ms = await toTheEnd({ SMTP_URL: 'smtp://127.0.0.1:1' }, async as => {
        const startedAt = performance.now();
        expect((await register(sent, { as })).status).to.equal(202);
        return performance.now() - startedAt;
      });
      expect(ms).to.be.below(1_000);
      const told = world.logs.slice(logged).map(line => JSON.parse(line));
      const failures = told.filter(({ event }) => event === 'background_failed');
      expect(failures).to.have.length(1);
      expect(failures[0]).to.include({ task: 'register', level: 50 });
      expect(failures[0].err.stack, 'where').to.be.a('string');
      expect(JSON.stringify(told)).to.not.match(/[\w-]{43}(?![\w-])/);
      // The address is asked again, and confirms, when mail works again.
      expect((await register(sent)).status).to.equal(202);
      expect((await confirm(await mail.waitForToken(sent.email))).status).to.equal(204);
    });

    it('and answers at once also when the server for mail says nothing, and others meanwhile', async () => {
      const silent = createServer();
      const sockets = new Set<Socket>();
      silent.on('connection', socket => sockets.add(socket.on('error', () => {})));
      await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve));
      const { service, url } = await world.startAnotherServer({
        SMTP_URL: `smtp://127.0.0.1:${(silent.address() as AddressInfo).port}`,
      });
      const startedAt = performance.now();
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => register(form(), { as: world.anonymous.at(url) })),
      );
      const me = await (await world.login(world.acme)).at(url).get('/api/v1/auth/me');
      const ms = performance.now() - startedAt;
      expect([...answers, me].map(({ status }) => status)).to.deep.equal([...Array(10).fill(202), 200]);
      expect(ms).to.be.below(3_000);
      console.log(`      10 registrations and a call: ${ms.toFixed(0)} ms`);
      const logged = world.logs.length;
      await eventually(() => sockets.size === 10);
      for (const socket of sockets) socket.destroy();
      silent.close();
      await service.stop();
      const failures = world.logs.slice(logged).filter(line => line.includes('background_failed'));
      expect(failures).to.have.length(10);
    });

    it('into a file that only its owner can read, when there is no server for mail; the log tells the file, not the token', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'backoffice-mail-'));
      try {
        const logged = world.logs.length;
        const sent = form();
        await toTheEnd({ SMTP_URL: '', DATA_DIR: folder }, as => register(sent, { as }));
        const files = await readdir(join(folder, 'mail'));
        expect(files).to.have.length(1);
        expect(files[0]).to.match(/\.eml$/);
        const file = join(folder, 'mail', files[0] ?? '');
        const content = await readFile(file, 'utf8');
        expect(content).to.match(new RegExp(`^To: ${sent.email}\r$`, 'm'));
        expect((await stat(file)).mode & 0o077).to.equal(0);
        expect((await stat(join(folder, 'mail'))).mode & 0o077).to.equal(0);
        const told = world.logs.slice(logged).map(line => JSON.parse(line));
        const [written] = told.filter(({ event }) => event === 'mail_written');
        expect(written).to.include({ file });
        const token = tokenIn(content) ?? '';
        expect(JSON.stringify(told)).to.not.include(token);
        expect((await confirm(token)).status).to.equal(204);
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  });

  describe('is confirmed by a token that', () => {
    it('stands in the mail alone: the control database holds a hash', async () => {
      const { token } = await registered();
      await expectNotStored(world, [token]);
    });

    it('is good once', async () => {
      const { token, email } = await registered();
      expect((await confirm(token)).status).to.equal(204);
      const { confirmed_at } = (await user(email)) ?? {};
      const { status, body } = await confirm(token);
      expect([status, body.code, Object.keys(body.errors)]).to.deep.equal([400, 'validation_failed', ['token']]);
      expect((await user(email))?.confirmed_at).to.deep.equal(confirmed_at);
      const [row] = await controlSql<{ count: string }>(
        world,
        'select count(*) from registrations t join users u on u.id = t.user_id where email = ?',
        [email],
      );
      expect(row?.count).to.equal('0');
    });

    it('is good once when ten use it at the same time', async () => {
      for (let round = 0; round < 5; round++) {
        const { token } = await registered();
        const answers = await Promise.all(Array.from({ length: 10 }, () => confirm(token)));
        expect(answers.map(({ status }) => status).sort()).to.deep.equal([204, ...Array(9).fill(400)]);
      }
    });

    it('is good for 24 hours', async () => {
      const [late, inTime] = [await registered(), await registered()];
      const age = (email: string, by: string) =>
        controlSql(
          world,
          `update registrations set expires_at = expires_at - ?::interval
            where user_id = (select id from users where email = ?)`,
          [by, email],
        );
      await age(late.email, '24 hours');
      await age(inTime.email, '23:59:30');
      const refused = await confirm(late.token);
      expect(refused.status).to.equal(400);
      expect((await user(late.email))?.confirmed_at).to.equal(null);
      expect((await confirm(inTime.token)).status).to.equal(204);
      expect(comparable(await confirm('x')), 'an expired one looks like one that never was').to.deep.equal(
        comparable(refused),
      );
    });

    it('is good at its tenant, for its purpose, and as it is: nothing else uses it up', async () => {
      const { token, email } = await registered();
      const reset = (newPassword: string) =>
        world.anonymous.post('/api/v1/auth/reset-password', { token, newPassword }, { 'X-Tenant': world.acme.guid });
      expect((await confirm(token, world.globex)).status, 'another tenant').to.equal(400);
      expect((await reset('another password')).status, 'another purpose').to.equal(400);
      const others = [...token].map(
        (letter, at) => token.slice(0, at) + (letter === 'A' ? 'B' : 'A') + token.slice(at + 1),
      );
      others.push(token.slice(1), token.slice(0, -1), `${token}A`, ` ${token}`, `${token}=`, token.toLowerCase());
      const answers = await Promise.all(others.map(other => confirm(other)));
      expect(new Set(answers.map(({ status }) => status))).to.deep.equal(new Set([400]));
      expect((await user(email))?.confirmed_at).to.equal(null);
      expect((await confirm(token)).status).to.equal(204);
    });

    it('is a text: anything else is a mistake in the field', async () => {
      for (const token of [undefined, null, 7, '', ['x'], {}, true, 'x'.repeat(5_000), '\0', '\ud800']) {
        const { status, body } = await confirm(token);
        expect([status, Object.keys(body.errors)], JSON.stringify(token)).to.deep.equal([400, ['token']]);
      }
    });
  });

  describe('wants a password that', () => {
    const refused = async (password: unknown): Promise<string> => {
      const { status, body } = await register(form({ password: password as string }));
      if (status === 202) return 'accepted';
      expect([status, body.code, Object.keys(body.errors)]).to.deep.equal([400, 'validation_failed', ['password']]);
      return body.errors.password[0];
    };
    const keys = (count: number): string =>
      Array.from({ length: count }, (_, i) => String.fromCodePoint(0x1f511 + ((i * 7) % 26))).join('');

    it('has 8 to 128 characters, however many bytes each has', async () => {
      for (const good of ['q7w8z3rt', 'x'.repeat(64) + 'q7w8z3rt'.repeat(8), keys(8), keys(128)])
        expect(await refused(good), good).to.equal('accepted');
      for (const short of ['q7w8z3r', keys(7), 'e\u0301'.repeat(7)])
        expect(await refused(short)).to.include('at least 8');
      for (const long of [keys(129), `${'q7w8z3rt'.repeat(16)}a`])
        expect(await refused(long)).to.include('at most 128');
    });

    it('is none of those that guessing begins with, however decorated', async () => {
      const common = [
        'password',
        'Password',
        'PASSWORD1',
        'Password123!',
        '12345678',
        'qwertyuiop',
        'iloveyou',
        'aaaaaaaa',
      ];
      common.push('\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44', '\u{1f511}'.repeat(9), '        ');
      for (const password of common) expect(await refused(password), password).to.include('common');
      for (const password of [undefined, null, 7, ['long enough'], { length: 12 }])
        expect((await register({ ...form(), password })).status).to.equal(400);
    });

    it('needs no capitals, digits or signs', async () => {
      for (const password of ['correct horse battery', 'weathervane', '73927461930']) {
        expect(await refused(password), password).to.equal('accepted');
      }
    });

    it('is the same on every keyboard, and whose spaces and every byte count', async () => {
      const password = ` caf\u00e9 \ufb01ne ${'y'.repeat(72)}`;
      const person = await registered({ password });
      expect((await confirm(person.token)).status).to.equal(204);
      const typed = async (other: string) => (await login({ ...person, password: other })).status;
      expect(await typed(` cafe\u0301 fine ${'y'.repeat(72)}`)).to.equal(200);
      expect(await typed(password.trim())).to.equal(401);
      expect(await typed(`${password} `)).to.equal(401);
      expect(await typed(`${password.slice(0, -1)}z`)).to.equal(401);
    });
  });

  it('names every field that is wrong, and repeats nothing of it', async () => {
    const cases: [object, string[]][] = [
      [{}, ['email', 'firstName', 'lastName', 'password']],
      [{ email: 'x', password: 'short', firstName: ' ', lastName: '' }, ['email', 'firstName', 'lastName', 'password']],
      [{ ...form(), firstName: 'x'.repeat(256) }, ['firstName']],
      [{ ...form(), lastName: 'a\0b' }, ['lastName']],
      [{ ...form(), firstName: 7, lastName: ['x'] }, ['firstName', 'lastName']],
      [{ ...form(), email: { $ne: null } }, ['email']],
    ];
    for (const [body, fields] of cases) {
      const answer = await register(body);
      expect([answer.status, Object.keys(answer.body.errors).sort()]).to.deep.equal([400, fields]);
      expect(answer.headers.get('cache-control')).to.equal('no-store');
    }
  });

  describe('is told in the log', () => {
    it('without any password or token', () => {
      // What guessing begins with is also plain English.
      const telling = [...secrets].filter(secret => typeof secret === 'string' && /^(?=.*\d).{12,}$/.test(secret));
      expect(telling.length).to.be.above(100);
      expectNotLogged(world, telling);
    });
  });
});
