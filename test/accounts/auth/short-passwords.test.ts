import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { isCommonPassword } from '../../../src/accounts/auth/common-passwords.ts';
import { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant } from '../../support/world.ts';
import { factorWorld } from './factors/factor-world.ts';
import { addSampleUser, type SampleUser } from './sample-users.ts';

const resetPath = '/api/v1/auth/reset-password';

describe('length and words of passwords', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));

  /** Adds a user who has had a password of eight characters since before 15 were asked for. */
  async function addUserOfBefore(tenant: TestTenant): Promise<SampleUser> {
    const user = await addSampleUser(world, tenant);
    const password = 'q7w8z3rt';
    await controlSql(world, 'update users set password_hash = ? where id = ?', [
      await world.passwords.hash(password),
      user.id,
    ]);
    return { ...user, password };
  }

  const isMarked = async (client: Client): Promise<unknown> => {
    const { status, body } = await client.get('/api/v1/auth/me');
    expect(status).to.equal(200);
    return body.passwordIsShort;
  };

  const requestToken = async (
    { email }: Pick<SampleUser, 'email'>,
    tenant: TestTenant,
  ): Promise<string> => {
    const count = mail.messagesTo(email).length;
    await world.anonymous.post(resetPath, { email }, { 'X-Tenant': tenant.guid });
    return mail.waitForToken(email, count + 1);
  };

  it('a short password from before logs in, and marks its sessions alone, at each process, also after a refresh', async () => {
    const otherUrl = (await world.startAnotherServer()).url;

    for (const tenant of [world.acme, world.globex]) {
      const [before, other] = [await addUserOfBefore(tenant), await addSampleUser(world, tenant)];
      const client = await world.login(tenant, before);

      expect(await isMarked(client)).to.equal(true);
      expect(await isMarked(client.at(otherUrl))).to.equal(true);
      expect(await isMarked(await world.login(tenant, other))).to.equal(undefined);

      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken: client.tokens?.refreshToken },
        { 'X-Tenant': tenant.guid },
      );
      expect(await isMarked(new Client(world.url, refreshed.body))).to.equal(true);
    }
  });

  it('a longer password ends the marked session, and its own session has no mark', async () => {
    const { acme } = world;
    const user = await addUserOfBefore(acme);
    const marked = await world.login(acme, user);
    expect(await isMarked(marked)).to.equal(true);

    const body = { token: await requestToken(user, acme), newPassword: 'three quiet rivers' };
    const set = await world.anonymous.post(resetPath, body, { 'X-Tenant': acme.guid });

    expect(set.status).to.equal(204);
    await eventually(async () => (await marked.get('/api/v1/auth/me')).status === 401, announcedMs);
    const longer = await world.login(acme, { ...user, password: body.newPassword });
    expect(await isMarked(longer)).to.equal(undefined);
  });

  it('a password of words of the account is refused by a link, which stays good', async () => {
    const { globex } = world;
    const user = await addSampleUser(world, globex, { email: 'nora.newman@globex.test' });
    const token = await requestToken(user, globex);
    const setPassword = (newPassword: string) =>
      world.anonymous.post(resetPath, { token, newPassword }, { 'X-Tenant': globex.guid });

    for (const own of ['nora.newman-2026', 'Per Son 11/2026 !!', 'globex-newman-1']) {
      const { status, body } = await setPassword(own);

      expect(status, own).to.equal(400);
      expect(body.errorCodes, own).to.deep.equal({ newPassword: [{ code: 'own_words' }] });
    }
    await world.login(globex, user);

    expect((await setPassword('nora crosses three rivers')).status).to.equal(204);
    await world.login(globex, { ...user, password: 'nora crosses three rivers' });
  });

  it('with PASSWORD_MIN_LENGTH=8, a process accepts eight characters, marks none of its logins, and no fewer', async () => {
    const { acme } = world;
    const lenient = (await world.startAnotherServer({ PASSWORD_MIN_LENGTH: '8' })).url;
    const user = await addSampleUser(world, acme);
    const token = await requestToken(user, acme);
    const setPassword = (newPassword: string, url: string) =>
      new Client(url).post(resetPath, { token, newPassword }, { 'X-Tenant': acme.guid });

    expect((await setPassword('q7w8z3rk', world.url)).body.errorCodes).to.deep.equal({
      newPassword: [{ code: 'too_short', min: 15 }],
    });
    expect((await setPassword('q7w8z3r', lenient)).body.errorCodes).to.deep.equal({
      newPassword: [{ code: 'too_short', min: 8 }],
    });
    expect((await setPassword('q7w8z3rk', lenient)).status).to.equal(204);

    const login = await new Client(lenient).post(
      '/api/v1/auth/login',
      { email: user.email, password: 'q7w8z3rk' },
      { 'X-Tenant': acme.guid },
    );
    expect(await isMarked(new Client(world.url, login.body))).to.equal(undefined);
  });

  it('beside a second factor, a link sets a password of eight characters, and no shorter one', async () => {
    const { acme } = world;
    const people = factorWorld(world);
    const { person, client } = await people.add(acme);
    const { secret } = await people.addTotp(client);
    const token = await requestToken(person, acme);
    const setPassword = (newPassword: string) =>
      world.anonymous.post(resetPath, { token, newPassword }, { 'X-Tenant': acme.guid });

    expect((await setPassword('q7w8z3r')).status).to.equal(400);
    expect((await setPassword('q7w8z3rk')).status).to.equal(204);

    const short = { ...person, password: 'q7w8z3rk' };
    const { challenge } = (await people.login(short)).body;
    const verified = await people.verify(short, { challenge, code: people.code(secret) });
    expect(verified.status).to.equal(200);
  });

  it('a command refuses the passwords that a request would, and takes its least length from the setting', async () => {
    const add = (email: string, password: string, environment = {}) =>
      runCommand(
        'scripts/tenant.ts',
        ['user', 'add', 'acme', email, '--password-stdin'],
        { ...world.environment, ...environment },
        password,
      );

    const refused = [
      ['q7w8z3rtq7w8z3', 'must be at least 15 characters long'],
      ['Password1234567', 'is one of the most common passwords'],
      ['command-acme-2026', 'must not consist of names and words of this account'],
    ] as const;
    for (const [password, reason] of refused) {
      const { code, stderr } = await add('command@acme.test', password);

      expect(code, password).not.to.equal(0);
      expect(stderr, password).to.include(reason).and.not.include(password);
    }

    const lenient = await add('lenient@acme.test', 'q7w8z3rk', { PASSWORD_MIN_LENGTH: '8' });
    expect(lenient.code).to.equal(0);
    const wrong = await add('lenient@acme.test', 'q7w8z3rk', { PASSWORD_MIN_LENGTH: '7' });
    expect(wrong.stderr).to.include('PASSWORD_MIN_LENGTH must be 8 to 64');
  });

  it('of 100,000 generated passwords, not one counts as a common one', () => {
    const generated = Array.from({ length: 100_000 }, (_, index) =>
      createHash('sha256').update(`${index}`).digest('hex').slice(0, 24),
    );

    expect(generated.filter(isCommonPassword)).to.deep.equal([]);
    expect(['iloveyou!', 'Password1234567', 'abcabcabcabcabc'].every(isCommonPassword)).to.be.true;
  });
});
