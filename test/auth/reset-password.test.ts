import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { sendRaw } from '../support/raw-http.ts';
import { createWorld, type World } from '../support/world.ts';
import { comparable } from './responses.ts';
import { addSampleUser, controlSql, type SampleUser, withUsersLocked } from './sample-users.ts';
import { expectNotLogged, expectNotStored } from './secrets.ts';

const path = '/api/v1/auth/reset-password';

describe('A password that is forgotten', () => {
  let mail: MailServer;
  let world: World;
  /** The other process of the service. */
  let elsewhere: string;
  /** Passwords and tokens that were used, to be looked for in the log. */
  const secrets = new Set<string>();

  before(async () => {
    mail = await startMailServer();
    world = await createWorld({ SMTP_URL: mail.url });
    elsewhere = (await world.startAnotherServer()).url;
  });
  after(async () => {
    await world.close();
    await mail.close();
  });

  const person = async (email?: string, tenant = world.acme): Promise<SampleUser> => {
    const added = await addSampleUser(world, tenant, email === undefined ? {} : { email });
    secrets.add(added.password);
    return added;
  };
  const send = (body: object, as: Client = world.anonymous, tenant = world.acme): Promise<ApiResponse> =>
    as.post(path, body, { 'X-Tenant': tenant.guid });
  const ask = (email: string, as?: Client): Promise<ApiResponse> => send({ email }, as);
  const newPassword = (): string => {
    const password = randomBytes(9).toString('hex');
    secrets.add(password);
    return password;
  };
  const set = (token: unknown, password: unknown = newPassword(), tenant = world.acme): Promise<ApiResponse> =>
    send({ token, newPassword: password }, world.anonymous, tenant);
  /** Asks for a mail, and waits for the token in it. */
  const asked = async ({ email }: SampleUser): Promise<string> => {
    const before = mail.messagesTo(email).length;
    expect((await ask(email)).status).to.equal(202);
    const token = await mail.waitForToken(email, before + 1);
    secrets.add(token);
    return token;
  };
  const login = async ({ email }: SampleUser, password: string): Promise<number> => {
    const answer = await world.anonymous.post(
      '/api/v1/auth/login',
      { email, password },
      { 'X-Tenant': world.acme.guid },
    );
    return answer.status;
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

  describe('is asked for', () => {
    let known: SampleUser;
    let unconfirmed: SampleUser;
    let disabled: SampleUser;
    let foreign: SampleUser;

    before(async () => {
      [known, unconfirmed, disabled] = [await person(), await person(), await person()];
      foreign = await person(undefined, world.globex);
      await controlSql(world, 'update users set confirmed_at = null where id = ?', [unconfirmed.id]);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [disabled.id]);
    });

    it('with the same answer for any address, and a mail only to users who may log in', async () => {
      const letters = mail.messages.length;
      const addresses = [known, unconfirmed, disabled, foreign].map(({ email }) => email);
      addresses.push(`nobody-${randomBytes(4).toString('hex')}@acme.test`);
      const answers = await toTheEnd({}, async as => {
        const found: Record<string, unknown>[] = [];
        for (const email of addresses) found.push(comparable(await ask(email, as)));
        return found;
      });
      for (const [at, answer] of answers.entries()) expect(answer, addresses[at]).to.deep.equal(answers[0]);
      expect(answers[0]).to.include({ status: 202, body: '{"status":"accepted","traceId":"undefined"}' });
      expect(mail.messages.slice(letters).map(({ to }) => to)).to.deep.equal([[known.email]]);
      const tokens = await controlSql(world, 'select * from mail_tokens where user_id in (?, ?, ?)', [
        unconfirmed.id,
        disabled.id,
        foreign.id,
      ]);
      expect(tokens).to.deep.equal([]);
    });

    it('before anybody has looked whether there is such a user, so that time does not tell', async () => {
      const letters = mail.messagesTo(known.email).length;
      const statuses = await withUsersLocked(world, async () => {
        const answers = [];
        for (const email of [known.email, 'nobody@acme.test', disabled.email]) answers.push(await ask(email));
        return answers.map(({ status }) => status);
      });
      expect(statuses).to.deep.equal([202, 202, 202]);
      secrets.add(await mail.waitForToken(known.email, letters + 1));
    });

    it('by the address as it was stored, however it is typed, and by no look-alike of it', async () => {
      const kim = await person('kim@acme.test');
      const back = await person('back`tick@acme.test');
      await toTheEnd({}, async as => {
        for (const email of ['KIM@Acme.TEST', '  kim@acme.test\n', back.email])
          expect((await ask(email, as)).status).to.equal(202);
      });
      expect([mail.messagesTo(kim.email).length, mail.messagesTo(back.email).length]).to.deep.equal([2, 1]);
      const letters = mail.messages.length;
      const lookAlikes = [
        '\u212aim@acme.test', // Kelvin sign, K to NFC
        'k\u0131m@acme.test',
        'k\u0130m@acme.test',
        '\uff4bim@acme.test',
        'kim@\uff41cme.test',
        'kim@acme\u3002test',
        'back\u1feftick@acme.test',
        'kim+1@acme.test',
        'k.im@acme.test',
        'kim@acme.test.',
        '(x)kim@acme.test',
        'k%m@acme.test',
      ];
      await toTheEnd({}, async as => {
        for (const email of lookAlikes) expect((await ask(email, as)).status, email).to.equal(202);
      });
      expect(mail.messages.slice(letters)).to.deep.equal([]);
    });

    it('with a mail in which nothing stands that the request’s headers say', async () => {
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
      const { statuses } = await sendRaw(world.url, `${head.join('\r\n')}\r\n\r\n${body}`, { until: /accepted/ });
      expect(statuses).to.deep.equal([202]);
      await mail.waitForToken(known.email, before + 1);
      const { content } = mail.messagesTo(known.email)[before] ?? {};
      expect(content)
        .to.match(/^http:\/\/backoffice\.test\/api\/v1\/auth\/reset-password\r$/m)
        .and.not.match(/evil/);
      expect(content).to.match(/^Subject: A new password for acme Ltd\r$/m);
    });

    it('and answered at once when the server for mail is away, for known and unknown alike', async () => {
      const logged = world.logs.length;
      const answers = await toTheEnd({ SMTP_URL: 'smtp://127.0.0.1:1' }, async as => {
        const startedAt = performance.now();
        const found = [comparable(await ask(known.email, as)), comparable(await ask('nobody@acme.test', as))];
        expect(performance.now() - startedAt).to.be.below(1_000);
        return found;
      });
      expect(answers[0]).to.include({ status: 202 }).and.deep.equal(answers[1]);
      const failures = world.logs.slice(logged).filter(line => line.includes('background_failed'));
      expect(failures).to.have.length(1);
      expect(JSON.parse(failures[0] ?? '')).to.include({ task: 'reset-password', level: 50 });
      expect(failures[0]).to.not.match(/[\w-]{43}(?![\w-])/);
    });
  });

  it('is set by the token of the mail: the new one logs in, the old one does not, and nobody is logged in', async () => {
    const one = await person();
    const [row] = await controlSql<{ count: string }>(world, 'select count(*) from sessions');
    const token = await asked(one);
    const password = newPassword();
    const { status, body, headers } = await set(token, password);
    expect([status, body, headers.get('set-cookie')]).to.deep.equal([204, '', null]);
    expect(await controlSql(world, 'select count(*) from sessions')).to.deep.equal([row]);
    expect(await login(one, one.password)).to.equal(401);
    expect(await login(one, password)).to.equal(200);
  });

  it('ends every session of the user everywhere within 1 s, and no session of anybody else', async () => {
    const [one, other] = [await person(), await person()];
    const sessions = await Promise.all([1, 2, 3].map(() => world.login(world.acme, one)));
    const others = [await world.login(world.acme, other), await world.login(world.acme)];
    const statuses = (clients: Client[]): Promise<number[]> =>
      Promise.all(
        clients
          .flatMap(client => [client, client.at(elsewhere)])
          .map(async client => (await client.get('/api/v1/auth/me')).status),
      );
    expect(await statuses([...sessions, ...others])).to.deep.equal(Array(10).fill(200));
    const token = await asked(one);
    expect(await statuses(sessions), 'the mail alone ends nothing').to.deep.equal(Array(6).fill(200));
    expect((await set(token)).status).to.equal(204);
    const startedAt = performance.now();
    await eventually(async () => (await statuses(sessions)).every(status => status === 401), 1_000);
    console.log(`      refused in both processes after ${(performance.now() - startedAt).toFixed(0)} ms`);
    for (const { tokens } of sessions) {
      const { refreshToken } = tokens ?? {};
      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken },
        { 'X-Tenant': world.acme.guid },
      );
      expect([refreshed.status, refreshed.body.code]).to.deep.equal([401, 'invalid_refresh_token']);
      secrets.add(refreshToken ?? '').add(tokens?.accessToken ?? '');
    }
    const reasons = await controlSql(world, 'select distinct revoked_reason from sessions where user_id = ?', [one.id]);
    expect(reasons).to.deep.equal([{ revoked_reason: 'password_reset' }]);
    expect(await statuses(others)).to.deep.equal(Array(4).fill(200));
  });

  describe('is set by a token that', () => {
    it('stands in the mail alone: the control database holds a hash', async () => {
      await expectNotStored(world, [await asked(await person())]);
    });

    it('is good once', async () => {
      const one = await person();
      const token = await asked(one);
      const password = newPassword();
      expect((await set(token, password)).status).to.equal(204);
      const { status, body } = await set(token);
      expect([status, body.code, Object.keys(body.errors)]).to.deep.equal([400, 'validation_failed', ['token']]);
      expect(await login(one, password)).to.equal(200);
    });

    it('is good once when five use it at the same time, and the password is that one’s', async () => {
      for (let round = 0; round < 3; round++) {
        const one = await person();
        const token = await asked(one);
        const passwords = Array.from({ length: 5 }, newPassword);
        const answers = await Promise.all(passwords.map(password => set(token, password)));
        expect(answers.map(({ status }) => status).sort()).to.deep.equal([204, 400, 400, 400, 400]);
        const winner = passwords[answers.findIndex(({ status }) => status === 204)] ?? '';
        expect(await login(one, winner)).to.equal(200);
      }
    });

    it('is the newest: a later mail voids the one before', async () => {
      const one = await person();
      const [first, second] = [await asked(one), await asked(one)];
      expect(second).to.not.equal(first);
      expect((await set(first)).status).to.equal(400);
      expect((await set(second)).status).to.equal(204);
    });

    it('is good for an hour', async () => {
      const [late, inTime] = [await person(), await person()];
      const tokens = { late: await asked(late), inTime: await asked(inTime) };
      const age = ({ id }: SampleUser, by: string) =>
        controlSql(world, 'update mail_tokens set expires_at = expires_at - ?::interval where user_id = ?', [by, id]);
      await age(late, '1 hour');
      await age(inTime, '00:59:30');
      const refused = await set(tokens.late);
      expect(refused.status).to.equal(400);
      expect(await login(late, late.password)).to.equal(200);
      expect(comparable(await set('never given')), 'an expired one looks like one that never was').to.deep.equal(
        comparable(refused),
      );
      expect((await set(tokens.inTime)).status).to.equal(204);
    });

    it('is good at its tenant, for its purpose, and as it is: nothing else uses it up', async () => {
      const one = await person();
      const token = await asked(one);
      const confirmed = await world.anonymous.post('/api/v1/auth/confirm', { token }, { 'X-Tenant': world.acme.guid });
      expect(confirmed.status, 'another purpose').to.equal(400);
      expect((await set(token, newPassword(), world.globex)).status, 'another tenant').to.equal(400);
      const changed = [0, 1, 21, 41, 42].map(
        at => token.slice(0, at) + (token[at] === 'A' ? 'B' : 'A') + token.slice(at + 1),
      );
      for (const other of [...changed, token.slice(1), token.slice(0, -1), `${token}A`, ` ${token}`, `${token}=`])
        expect((await set(other)).status, other).to.equal(400);
      expect(await login(one, one.password)).to.equal(200);
      expect((await set(token)).status).to.equal(204);
    });

    it('lets nobody in who was disabled meanwhile', async () => {
      const one = await person();
      const token = await asked(one);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [one.id]);
      const password = newPassword();
      await set(token, password);
      expect(await login(one, password)).to.equal(401);
    });
  });

  it('is not set to one that cannot be a password, and the token stays good', async () => {
    const one = await person();
    const token = await asked(one);
    const refused = ['q7w8z3r', `${'q7w8z3rt'.repeat(16)}a`, 'Password1!', '12345678', '', null, 7, ['long enough']];
    for (const password of refused) {
      const { status, body } = await set(token, password);
      expect([status, Object.keys(body.errors)], String(password)).to.deep.equal([400, ['newPassword']]);
    }
    expect(await login(one, one.password)).to.equal(200);
    expect((await set(token, 'q7w8z3rt')).status).to.equal(204);
    expect(await login(one, 'q7w8z3rt')).to.equal(200);
  });

  it('is asked for or set, never both, and half of either is a mistake that is named', async () => {
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
    await toTheEnd({}, async as => {
      for (const [body, fields] of cases) {
        const answer = await send(body, as);
        expect([answer.status, Object.keys(answer.body.errors ?? {})], JSON.stringify(body)).to.deep.equal([
          400,
          fields,
        ]);
      }
    });
    expect(mail.messagesTo(world.acme.admin.email)).to.deep.equal([]);
  });

  describe('is told in the log', () => {
    it('without any password or token', () => {
      expect(secrets.size).to.be.above(50);
      expectNotLogged(world, secrets);
    });
  });
});
