import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { startMailServer, tokenIn } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { sendRaw } from '../../support/raw-http.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';
import { withDrainedServer } from './drained-server.ts';
import { comparable } from './responses.ts';
import { addSampleUser, type SampleUser, withUsersHidden } from './sample-users.ts';
import { expectNotLogged, expectNotStored } from './secrets.ts';

const path = '/api/v1/auth/reset-password';

describe('password reset', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));
  /** URL of a second server of the service. */
  let otherUrl: string;
  /** All passwords and tokens of these tests; the last test searches the log for them. */
  const secrets = new Set<string>();

  before(async () => {
    otherUrl = (await world.startAnotherServer()).url;
  });

  const addUser = async (email?: string, tenant = world.acme): Promise<SampleUser> => {
    const added = await addSampleUser(world, tenant, email === undefined ? {} : { email });
    secrets.add(added.password);
    return added;
  };
  const send = (
    body: object,
    as: Client = world.anonymous,
    tenant = world.acme,
  ): Promise<ApiResponse> => as.post(path, body, { 'X-Tenant': tenant.guid });
  const requestMail = (email: string, as?: Client): Promise<ApiResponse> => send({ email }, as);
  const newPassword = (): string => {
    const password = randomBytes(9).toString('hex');
    secrets.add(password);
    return password;
  };
  const setPassword = (
    token: unknown,
    password: unknown = newPassword(),
    tenant = world.acme,
  ): Promise<ApiResponse> => send({ token, newPassword: password }, world.anonymous, tenant);
  /** Requests a mail for a user and returns the token in it. */
  const requestToken = async ({ email }: SampleUser): Promise<string> => {
    const before = mail.messagesTo(email).length;
    expect((await requestMail(email)).status).to.equal(202);
    const token = await mail.waitForToken(email, before + 1);
    secrets.add(token);
    return token;
  };
  const login = async ({ email }: SampleUser, password: string): Promise<number> => {
    const { status } = await world.anonymous.post(
      '/api/v1/auth/login',
      { email, password },
      { 'X-Tenant': world.acme.guid },
    );
    return status;
  };

  describe('request for a mail', () => {
    let known: SampleUser;
    let unconfirmed: SampleUser;
    let disabled: SampleUser;
    let foreign: SampleUser;

    before(async () => {
      [known, unconfirmed, disabled] = [await addUser(), await addUser(), await addUser()];
      foreign = await addUser(undefined, world.globex);
      await controlSql(world, 'update users set confirmed_at = null where id = ?', [
        unconfirmed.id,
      ]);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [disabled.id]);
    });

    it('the response is the same for every address, and only who may log in gets a link', async () => {
      await mailsSettled(world); // that of the disabled person
      const mailsBefore = mail.messages.length;
      const addresses = [known, unconfirmed, disabled, foreign].map(({ email }) => email);
      addresses.push(`unknown-${randomBytes(4).toString('hex')}@acme.test`);

      const responses: Record<string, unknown>[] = [];
      for (const email of addresses) responses.push(comparable(await requestMail(email)));
      await mailsSettled(world);

      for (const [at, response] of responses.entries()) {
        expect(response, addresses[at]).to.deep.equal(responses[0]);
      }
      expect(responses[0]).to.include({
        status: 202,
        body: '{"status":"accepted","traceId":"undefined"}',
      });

      const mailed = mail.messages.slice(mailsBefore);
      const withLink = mailed.filter(({ content }) => tokenIn(content) !== undefined);
      expect(withLink.map(({ to }) => to)).to.deep.equal([[known.email]]);
      const recipients = [known, unconfirmed, disabled].map(({ email }) => email);
      expect(mailed.flatMap(({ to }) => to).sort()).to.deep.equal(recipients.sort());

      const deliveries = await controlSql(
        world,
        `select * from mail_deliveries where address is not null or user_id = ?
             or user_id in (?, ?) and kind <> 'account_notice'`,
        [foreign.id, unconfirmed.id, disabled.id],
      );
      expect(deliveries).to.deep.equal([]);
    });

    it('the response is sent before the address is looked up, so its time does not disclose the address', async () => {
      const mailsBefore = mail.messagesTo(known.email).length;
      const statuses = await withUsersHidden(world, async () => {
        const responses = [];
        for (const email of [known.email, 'unknown@acme.test', disabled.email]) {
          responses.push(await requestMail(email));
        }
        return responses.map(({ status }) => status);
      });

      expect(statuses).to.deep.equal([202, 202, 202]);
      secrets.add(await mail.waitForToken(known.email, mailsBefore + 1));
    });

    it('a mail is sent for an address in other capitals or with spaces around it, and never for a look-alike', async () => {
      const kim = await addUser('kim@acme.test');
      const back = await addUser('back`tick@acme.test');

      for (const email of ['KIM@Acme.TEST', '  kim@acme.test\n', back.email]) {
        expect((await requestMail(email)).status).to.equal(202);
        await mailsSettled(world);
      }
      expect(mail.messagesTo(kim.email).length).to.equal(2);
      expect(mail.messagesTo(back.email).length).to.equal(1);

      const mailsBefore = mail.messages.length;
      const lookAlikes = [
        '\u212aim@acme.test', // the Kelvin sign, which NFC turns into K
        'k\u0131m@acme.test',
        'k\u0130m@acme.test',
        '\uff4bim@acme.test',
        'back\u1feftick@acme.test',
        'kim+1@acme.test',
        'k.im@acme.test',
        '(x)kim@acme.test',
        'k%m@acme.test',
      ];

      for (const email of lookAlikes) {
        expect((await requestMail(email)).status, email).to.equal(202);
      }
      const impossible = [
        'kim@\uff41cme.test',
        'kim@acme\u3002test',
        'kim@acme.test.',
        'k\u200bim@acme.test',
      ];
      for (const email of impossible) {
        expect((await requestMail(email)).status, email).to.equal(400);
      }
      await mailsSettled(world);
      expect(mail.messages.slice(mailsBefore)).to.deep.equal([]);
    });

    it('the mail of a password reset contains nothing from the headers of the request', async () => {
      const before = mail.messagesTo(known.email).length;
      const body = JSON.stringify({ email: known.email });
      const head = [
        `POST ${path} HTTP/1.1`,
        'Host: evil.test',
        'X-Forwarded-Host: evil.test',
        'Forwarded: host=evil.test',
        'Origin: http://evil.test',
        `X-Tenant: ${world.acme.guid}`,
        'Content-Type: application/json',
        `Content-Length: ${body.length}`,
      ];

      const { statuses } = await sendRaw(world.url, `${head.join('\r\n')}\r\n\r\n${body}`, {
        until: /accepted/,
      });
      expect(statuses).to.deep.equal([202]);
      await mail.waitForToken(known.email, before + 1);

      const { content } = mail.messagesTo(known.email)[before] ?? {};
      expect(content)
        .to.match(/http:\/\/backoffice\.test\/reset\?/)
        .and.not.match(/evil/);
      expect(content).to.match(/^Subject: A new password for acme Ltd\r$/m);
    });

    it('with an unreachable mail server, known and unknown addresses get the same response at once', async () => {
      const away = await createWorld({ SMTP_URL: 'smtp://127.0.0.1:1' });
      try {
        const user = await addSampleUser(away, away.acme);
        const request = (email: string) =>
          away.anonymous.post(path, { email }, { 'X-Tenant': away.acme.guid });
        const startedAt = performance.now();

        const responses = [
          comparable(await request(user.email)),
          comparable(await request('unknown@acme.test')),
        ];

        // the time limits of a mail are minutes
        expect(performance.now() - startedAt).to.be.below(20_000);
        expect(responses[0]).to.include({ status: 202 }).and.deep.equal(responses[1]);

        const [failure] = await eventually(() => {
          const lines = away.logs.filter(line => line.includes('mail_failed'));
          return lines.length > 0 && lines;
        });
        const line = JSON.parse(failure ?? '');
        expect(line).to.include({
          kind: 'reset',
          tenant: away.acme.guid,
          attempt: 1,
          cause: 'ECONNREFUSED',
          level: 40,
        });
        expect(line.traceId).to.be.a('string');
        expect(failure)
          .to.not.match(/[\w-]{43}(?![\w-])/)
          .and.not.include(user.email);
      } finally {
        await away.close();
      }
    });
  });

  it('after a reset, only the new password logs in, and the reset itself starts no session', async () => {
    const user = await addUser();
    const [row] = await controlSql<{ count: string }>(world, 'select count(*) from sessions');
    const token = await requestToken(user);
    const password = newPassword();

    const { status, body, headers } = await setPassword(token, password);
    expect(status).to.equal(204);
    expect(body).to.equal('');
    expect(headers.get('set-cookie')).to.equal(null);
    expect(await controlSql(world, 'select count(*) from sessions')).to.deep.equal([row]);

    expect(await login(user, user.password)).to.equal(401);
    expect(await login(user, password)).to.equal(200);
  });

  it('a reset ends every session of the user on all servers, and no session of other users', async () => {
    const [user, other] = [await addUser(), await addUser()];
    const sessions = await Promise.all([1, 2, 3].map(() => world.login(world.acme, user)));
    const others = [await world.login(world.acme, other), await world.login(world.acme)];

    const statuses = (clients: Client[]): Promise<number[]> =>
      Promise.all(
        clients
          .flatMap(client => [client, client.at(otherUrl)])
          .map(async client => (await client.get('/api/v1/auth/me')).status),
      );
    expect(await statuses([...sessions, ...others])).to.deep.equal(Array(10).fill(200));

    const token = await requestToken(user);
    expect(await statuses(sessions), 'the mail alone ends no session').to.deep.equal(
      Array(6).fill(200),
    );

    expect((await setPassword(token)).status).to.equal(204);
    const startedAt = performance.now();
    await eventually(
      async () => (await statuses(sessions)).every(status => status === 401),
      announcedMs,
    );
    console.log(
      `      rejected by both servers after ${(performance.now() - startedAt).toFixed(0)} ms`,
    );

    for (const { tokens } of sessions) {
      const { refreshToken } = tokens ?? {};
      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken },
        { 'X-Tenant': world.acme.guid },
      );
      expect(refreshed.status).to.equal(401);
      expect(refreshed.body.code).to.equal('invalid_refresh_token');
      secrets.add(refreshToken ?? '').add(tokens?.accessToken ?? '');
    }

    const reasons = await controlSql(
      world,
      'select distinct revoked_reason from sessions where user_id = ?',
      [user.id],
    );
    expect(reasons).to.deep.equal([{ revoked_reason: 'password_reset' }]);
    expect(await statuses(others)).to.deep.equal(Array(4).fill(200));
  });

  describe('reset token', () => {
    it('the reset token is in the mail only; the control database stores its hash', async () => {
      await expectNotStored(world, [await requestToken(await addUser())]);
    });

    it('a reset token sets a password once', async () => {
      const user = await addUser();
      const token = await requestToken(user);
      const password = newPassword();
      expect((await setPassword(token, password)).status).to.equal(204);
      const { status, body } = await setPassword(token);
      expect(status).to.equal(400);
      expect(body.code).to.equal('validation_failed');
      expect(Object.keys(body.errors)).to.deep.equal(['token']);
      expect(await login(user, password)).to.equal(200);
    });

    it('of five concurrent uses of a reset token, exactly one sets the password', async () => {
      for (let round = 0; round < 3; round++) {
        const user = await addUser();
        const token = await requestToken(user);
        const passwords = Array.from({ length: 5 }, newPassword);

        const responses = await Promise.all(
          passwords.map(password => setPassword(token, password)),
        );
        expect(responses.map(({ status }) => status).sort()).to.deep.equal([
          204, 400, 400, 400, 400,
        ]);

        const accepted = passwords[responses.findIndex(({ status }) => status === 204)] ?? '';
        expect(await login(user, accepted)).to.equal(200);
      }
    });

    it('a new reset token invalidates the earlier one of the user', async () => {
      const user = await addUser();
      const [first, second] = [await requestToken(user), await requestToken(user)];
      expect(second).to.not.equal(first);
      expect((await setPassword(first)).status).to.equal(400);
      expect((await setPassword(second)).status).to.equal(204);
    });

    it('a reset token expires after an hour, and an expired one looks like an unknown one', async () => {
      const [late, inTime] = [await addUser(), await addUser()];
      const tokens = { late: await requestToken(late), inTime: await requestToken(inTime) };
      const makeOlder = ({ id }: SampleUser, by: string) =>
        controlSql(
          world,
          'update mail_deliveries set expires_at = expires_at - ?::interval where user_id = ?',
          [by, id],
        );

      await makeOlder(late, '1 hour');
      await makeOlder(inTime, '00:59:30');

      const rejected = await setPassword(tokens.late);
      expect(rejected.status).to.equal(400);
      expect(await login(late, late.password)).to.equal(200);
      expect(comparable(await setPassword('never issued')), 'an unknown token').to.deep.equal(
        comparable(rejected),
      );
      expect((await setPassword(tokens.inTime)).status).to.equal(204);
    });

    it('a reset token works only unchanged, in its tenant and for a reset', async () => {
      const user = await addUser();
      const token = await requestToken(user);

      const confirmed = await world.anonymous.post(
        '/api/v1/auth/confirm',
        { token },
        { 'X-Tenant': world.acme.guid },
      );
      expect(confirmed.status, 'another purpose').to.equal(400);
      expect(
        (await setPassword(token, newPassword(), world.globex)).status,
        'another tenant',
      ).to.equal(400);

      const changed = [0, 1, 21, 22, 41, 65].map(
        at => token.slice(0, at) + (token[at] === 'A' ? 'B' : 'A') + token.slice(at + 1),
      );

      for (const other of [
        ...changed,
        token.slice(1),
        token.slice(0, -1),
        `${token}A`,
        ` ${token}`,
        `${token}=`,
      ]) {
        expect((await setPassword(other)).status, other).to.equal(400);
      }

      expect(await login(user, user.password)).to.equal(200);
      expect((await setPassword(token)).status).to.equal(204);
    });

    it('a reset token does not let a user log in who was disabled after the mail', async () => {
      const user = await addUser();
      const token = await requestToken(user);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [user.id]);
      const password = newPassword();
      await setPassword(token, password);
      expect(await login(user, password)).to.equal(401);
    });
  });

  it('a reset with a password that breaks the rules is rejected, and the token stays valid', async () => {
    const user = await addUser();
    const token = await requestToken(user);

    const invalid = [
      'q7w8z3rtq7w8z3',
      `${'q7w8z3rt'.repeat(16)}a`,
      'Password1234567!',
      '123456789012345',
      '',
      null,
      7,
      ['long enough'],
    ];

    for (const password of invalid) {
      const { status, body } = await setPassword(token, password);
      expect(status, String(password)).to.equal(400);
      expect(Object.keys(body.errors), String(password)).to.deep.equal(['newPassword']);
    }

    expect(await login(user, user.password)).to.equal(200);
    expect((await setPassword(token, 'q7w8z3rtk5p9m2x')).status).to.equal(204);
    expect(await login(user, 'q7w8z3rtk5p9m2x')).to.equal(200);
  });

  it('a body with fields of both steps, or only a part of one step, is rejected with 400', async () => {
    const cases: [object, string[]][] = [
      [{}, ['email']],
      [{ email: 'not an address' }, ['email']],
      [{ email: 7 }, ['email']],
      [{ token: 'x' }, ['newPassword']],
      [{ newPassword: newPassword() }, ['token']],
      [{ token: '', newPassword: newPassword() }, ['token']],
      [{ token: 7, newPassword: newPassword() }, ['token']],
      [{ email: world.acme.admin.email, token: 'x', newPassword: newPassword() }, ['email']],
      [{ email: world.acme.admin.email, newPassword: newPassword() }, ['email']],
      [{ email: world.acme.admin.email, token: 'x' }, ['email']],
    ];

    await withDrainedServer(world, {}, async as => {
      for (const [body, fields] of cases) {
        const response = await send(body, as);
        const invalid = Object.keys(response.body.errors ?? {});
        expect(response.status, JSON.stringify(body)).to.equal(400);
        expect(invalid, JSON.stringify(body)).to.deep.equal(fields);
      }
    });

    expect(mail.messagesTo(world.acme.admin.email)).to.deep.equal([]);
  });

  // In a group of its own, because Mocha runs the tests outside a group first.
  describe('log of password resets', () => {
    it('no log line of a password reset contains a password or token', async () => {
      expect((await setPassword(await requestToken(await addUser()))).status).to.equal(204);

      expectNotLogged(world, secrets);
    });
  });
});
