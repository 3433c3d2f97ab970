import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse } from '../../../support/client.ts';
import { announcedMs, eventually } from '../../../support/eventually.ts';
import { startMailServer } from '../../../support/mail-server.ts';
import { mailsSettled } from '../../../support/mails.ts';
import { runCommand } from '../../../support/run-command.ts';
import { use } from '../../../support/use.ts';
import { controlSql, createWorld } from '../../../support/world.ts';
import { expectProblem } from '../../people/people-world.ts';
import { factorsPath, factorWorld, type Person } from './factor-world.ts';
import { passkeysPath, passkeyWorld } from './passkey-world.ts';
import type { SoftwareAuthenticator } from './software-authenticator.ts';

const resetPath = '/api/v1/auth/reset-password';

describe('a passkey that a new password holds', () => {
  const mail = use(startMailServer);
  const world = use(() =>
    createWorld({
      SMTP_URL: mail.url,
      RATE_LIMIT_LOGIN: '10000/15m',
      RATE_LIMIT_ACCOUNT: '10000/1h',
      RATE_LIMIT_MAILS: '1000/1h',
    }),
  );
  const people = factorWorld(world);
  const { loginOptions, loginAlone, addPasskey, setPages } = passkeyWorld(world);
  let urls: string[];

  before(async () => {
    urls = [world.url, (await world.startAnotherServer()).url];
    await setPages(urls);
  });

  const addPerson = async (tenant = world.acme) => {
    const added = await people.add(tenant);
    return { ...added, ...(await addPasskey(added.client)) };
  };
  /** Returns the link of a mail, which sets a new password. */
  const linkOf = async ({ email, tenant }: Person) => {
    const before = mail.messagesTo(email).length;
    await world.anonymous.post(resetPath, { email }, people.header(tenant));
    const token = await mail.waitForToken(email, before + 1);
    const newPassword = `a new password ${randomBytes(6).toString('hex')}`;

    return {
      newPassword,
      use: (url = world.url) =>
        world.anonymous.at(url).post(resetPath, { token, newPassword }, people.header(tenant)),
    };
  };
  /** Sets a new password by the link of a mail, and returns the person with it. */
  const resetPassword = async (person: Person): Promise<Person> => {
    const link = await linkOf(person);
    const { status, body } = await link.use();
    expect(status, JSON.stringify(body)).to.equal(204);
    return { ...person, password: link.newPassword };
  };
  const alone = async (
    authenticator: SoftwareAuthenticator,
    url = world.url,
    tenant = world.acme,
  ): Promise<ApiResponse> => {
    const { body } = await loginOptions(tenant, url);
    return loginAlone(tenant, authenticator.get(body), url);
  };
  /** Logs in with the password and a passkey. */
  const logIn = async (person: Person, authenticator: SoftwareAuthenticator) => {
    const { challenge, passkey } = (await people.login(person)).body;
    const proof = { challenge, passkey: authenticator.get(passkey) };
    const { status, body } = await people.verify(person, proof);
    expect(status, JSON.stringify(body)).to.equal(200);
    return world.anonymous.withToken(body.accessToken);
  };
  const heldOf = async (client: Awaited<ReturnType<typeof logIn>>) =>
    (await client.get(factorsPath)).body.map(({ heldAt }: { heldAt: string | null }) => heldAt);

  it('is no whole login at any process until its person confirms it, and completes logins meanwhile', async () => {
    const { person, client, authenticator, id } = await addPerson();
    expect(await heldOf(client)).to.deep.equal([null]);
    const neighbours = [await addPerson(), await addPerson(world.globex)];

    const renewed = await resetPassword(person);

    for (const url of urls) {
      const refused = await alone(authenticator, url);
      expectProblem(refused, 401, 'invalid_passkey');
      expect(refused.body.detail).to.include('confirm the passkey');
    }
    for (const each of neighbours) {
      const { tenant } = each.person;
      expect((await alone(each.authenticator, world.url, tenant)).status).to.equal(200);
    }

    const own = await logIn(renewed, authenticator);
    const [heldAt] = await heldOf(own);
    expect(heldAt).to.be.a('string');
    expect((await own.post(`${passkeysPath}/${id}/confirm`)).status).to.equal(204);
    expect(await heldOf(own)).to.deep.equal([null]);
    for (const url of urls) expect((await alone(authenticator, url)).status).to.equal(200);
    expect((await own.post(`${passkeysPath}/${id}/confirm`)).status, 'again').to.equal(204);
  });

  it('is confirmed by its person alone, with a proof of the password of the last five minutes', async () => {
    const { person, client, authenticator, id } = await addPerson();
    const older = await addPasskey(client);
    await controlSql(
      world,
      `update factors set confirmed_at = confirmed_at - interval '31 days' where id = ?`,
      [older.id],
    );
    const other = await addPerson();
    const stranger = await addPerson(world.globex);

    const renewed = await resetPassword(person);

    const byOlder = await alone(older.authenticator);
    expect(byOlder.status, 'a passkey of more than 30 days is not held').to.equal(200);
    const session = world.anonymous.withToken(byOlder.body.accessToken);
    const confirm = (at = session) => at.post(`${passkeysPath}/${id}/confirm`);
    expectProblem(await confirm(), 403, 'verification_required');
    for (const each of [other, stranger]) {
      expectProblem(await confirm(each.client), 404, 'not_found');
    }
    const unknown = `${passkeysPath}/${stranger.id}/confirm`;
    expectProblem(await session.post(unknown), 404, 'not_found');
    expectProblem(await session.post(`${passkeysPath}/x/confirm`), 404, 'not_found');
    expectProblem(await alone(authenticator), 401, 'invalid_passkey');

    const { password } = renewed;
    const wanted = (await session.post('/api/v1/auth/verify', { password })).body;
    const passkey = older.authenticator.get(wanted.passkey);
    const proof = { password, challenge: wanted.challenge, passkey };
    expect((await session.post('/api/v1/auth/verify', proof)).status).to.equal(200);
    await people.age(session, 6);
    expectProblem(await confirm(), 403, 'verification_required');
    const again = await logIn(renewed, authenticator);
    expect((await confirm(again)).status).to.equal(204);
    expect((await alone(authenticator)).status).to.equal(200);
  });

  it('opens no session in the moment in which the password is set, at two processes', async () => {
    for (let round = 0; round < 4; round++) {
      const { person, authenticator } = await addPerson();
      const link = await linkOf(person);
      const passkeys = await Promise.all(
        urls.map(async url =>
          authenticator.get((await loginOptions(world.acme, url)).body, { count: 0 }),
        ),
      );

      const [set, ...logins] = await Promise.all([
        link.use(urls[round % 2]),
        ...passkeys.map((passkey, i) => loginAlone(world.acme, passkey, urls[i])),
      ]);

      expect(set.status).to.equal(204);
      for (const { status, body } of logins) {
        if (status === 401) continue;
        const client = world.anonymous.withToken(body.accessToken);
        await eventually(
          async () => (await client.get('/api/v1/auth/me')).status === 401,
          announcedMs,
        );
      }
    }
  });

  it('opens no session by the statements of a build that does not know of it', async () => {
    const { person, userId, id } = await addPerson();
    await resetPassword(person);
    const [identity] = await controlSql<{ id: string }>(
      world,
      `with provider as (
         insert into identity_providers (tenant_id, name, issuer, client_ids)
         values (?, 'Staff', 'https://login.example.com', '{one}') returning id, tenant_id)
       insert into identities (tenant_id, user_id, provider_id, subject)
       select tenant_id, ?, id, 'one' from provider returning id`,
      [world.acme.id, userId],
    );
    const attempt = (methods: string, identityId: string | null = null) =>
      controlSql(
        world,
        `with used as (update factors set last_used_at = now() where id = ? returning tenant_id, user_id)
         insert into sessions (tenant_id, user_id, methods, identity_id)
         select tenant_id, user_id, ?::text[], ?::bigint from used`,
        [id, methods, identityId],
      ).then(
        () => 'opened',
        error => String(error.message),
      );

    expect(await attempt('{pop,user}')).to.include('this way to log in is held');
    expect(await attempt('{pwd,pop}')).to.equal('opened');
    expect(await attempt('{idp,pop}', identity?.id)).to.equal('opened');
    await controlSql(world, 'update factors set held_at = null where user_id = ?', [userId]);
    expect(await attempt('{pop,user}')).to.equal('opened');
  });

  it('is named in the mail to its person, with the time and the network of its addition', async () => {
    const { person, client } = await addPerson();
    await people.addTotp(client, 'My phone');
    await mailsSettled(world);
    const before = mail.noticesTo(person.email).length;

    await resetPassword(person);

    await eventually(() => mail.noticesTo(person.email).length > before);
    const text = mail.noticesTo(person.email)[before];
    const added = String.raw`added on \d{4}-\d\d-\d\d at \d\d:\d\d UTC, network 127\.0\.0\.1`;
    expect(text).to.match(new RegExp(String.raw`^Passkey \(passkey\), ${added}, held$`, 'm'));
    expect(text).to.match(new RegExp(String.raw`^My phone \(authenticator app\), ${added}$`, 'm'));
    expect(text).to.include('no whole login before you have confirmed it');
  });

  it('is held by no password that its person sets while logged in, nor by one of the operator', async () => {
    const { person, client, authenticator } = await addPerson();

    const newPassword = `a new password ${randomBytes(6).toString('hex')}`;
    expect((await client.put('/api/v1/auth/password', { newPassword })).status).to.equal(204);
    expect((await alone(authenticator)).status).to.equal(200);

    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['user', 'password', 'acme', person.email, '--yes'],
      world.environment,
    );
    expect(code, stderr).to.equal(0);
    expect((await alone(authenticator)).status).to.equal(200);
  });
});
