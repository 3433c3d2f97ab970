import { expect } from 'chai';
import { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { startMailServer, tokenIn } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant } from '../../support/world.ts';
import { invitation, usersPath } from '../people/people-world.ts';
import { addSampleUser } from './sample-users.ts';

describe('mails that somebody else requests for an address', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '3/15m' }));
  let url: string;

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);
    ({ url } = await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1' }));
  });

  const post = (address: string, path: string, body: object) =>
    new Client(url).post(`/api/v1/auth/${path}`, body, {
      'X-Tenant': world.acme.guid,
      'X-Forwarded-For': address,
    });
  const register = async (address: string, email: string, changes: object = {}): Promise<void> => {
    const person = {
      email,
      password: 'the password of an attacker',
      firstName: 'Mallory',
      lastName: 'Newman',
    };
    expect((await post(address, 'register', { ...person, ...changes })).status).to.equal(202);
  };
  /** Registers an address, and waits for mail number `count` to it. */
  const registerMailed = async (address: string, email: string, count: number): Promise<void> => {
    await register(address, email);
    await mail.waitForToken(email, count);
  };
  it('a client that registers the address of another person four times stops no mail that the owner requests', async () => {
    const email = 'victim@people.test';
    for (const [index, last] of ['1', '2', '3'].entries()) {
      // networks of one /48 are one client
      await registerMailed(`2001:db8:7:${last}::1`, email, index + 1);
    }
    await register('2001:db8:7:ff00::1', email);
    await mailsSettled(world);
    expect(mail.messagesTo(email)).to.have.length(3);

    const own = { email, password: 'the password of the owner', firstName: 'Olga' };
    await register('203.0.113.1', email, own);
    const token = await mail.waitForToken(email, 4);
    expect((await post('203.0.113.1', 'confirm', { token })).status).to.equal(204);
    expect((await post('203.0.113.1', 'login', own)).status).to.equal(200);
    await post('203.0.113.1', 'reset-password', { email });
    await mail.waitForToken(email, 5);
  });

  /** Lets time pass for the limits of mails. */
  const passTime = (interval: string) =>
    controlSql(
      world,
      `update mail_deliveries set settled_at = settled_at - interval '${interval}'`,
    );

  it('an address receives at most 10 registration mails in a day, however many clients ask, in 15 minutes or later', async () => {
    const email = 'flooded@people.test';
    let mailed = 0;
    for (let client = 0; client < 3; client++) {
      for (let n = 0; n < 3; n++) await registerMailed(`198.51.100.${client}`, email, ++mailed);
    }
    await passTime('20 minutes');
    await registerMailed('198.51.100.3', email, 10);

    await register('198.51.100.4', email);
    await passTime('20 minutes');
    await register('198.51.100.5', email);
    await mailsSettled(world);
    expect(mail.messagesTo(email)).to.have.length(10);
  });

  it('an address receives at most 10 mails for a new password in a day, of all processes, without those whose link was used', async () => {
    const { email } = await addSampleUser(world, world.acme);
    const { email: other } = await addSampleUser(world, world.globex);
    const another = new Client(
      (await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1' })).url,
    );
    const reset = (client: Client, tenant: TestTenant, address: string) =>
      client.post('/api/v1/auth/reset-password', { email: address }, { 'X-Tenant': tenant.guid });

    const usedLink = async (count: number): Promise<void> => {
      const token = await mail.waitForToken(email, count);
      const body = { token, newPassword: `the password number ${count}` };
      expect((await post('203.0.113.9', 'reset-password', body)).status).to.equal(204);
    };

    for (let count = 1; count <= 10; count++) {
      await reset(count % 2 ? another : world.anonymous, world.acme, email);
      await mail.waitForToken(email, count);
      await mailsSettled(world);
      await passTime('15 minutes');
    }

    const known = await reset(world.anonymous, world.acme, email);
    const unknown = await reset(another, world.acme, 'nobody@people.test');
    await mailsSettled(world);
    expect(mail.messagesTo(email)).to.have.length(10);
    expect(known.status).to.equal(202);
    expect(known.body).to.deep.equal(unknown.body);
    expect([...known.headers.keys()].sort()).to.deep.equal([...unknown.headers.keys()].sort());

    // Another address, and the address of another tenant, get theirs.
    await reset(another, world.globex, other);
    await mail.waitForToken(other, 1);

    await usedLink(10);
    await reset(another, world.acme, email);
    await usedLink(11);
    await reset(world.anonymous, world.acme, email);
    await mail.waitForToken(email, 12);
    await passTime('15 minutes');
    await reset(another, world.acme, email);
    await mailsSettled(world);
    expect(mail.messagesTo(email), 'two of twelve have set a password').to.have.length(12);

    await passTime('24 hours');
    await reset(another, world.acme, email);
    await mail.waitForToken(email, 13);
  });

  it('an address receives at most 10 invitations in a day, and a further one is 429 with the time that is left', async () => {
    const admin = await world.login(world.acme);
    const sent = invitation();
    for (let count = 1; count <= 10; count++) {
      expect((await admin.post(usersPath, sent)).status).to.equal(201);
      await mail.waitForToken(sent.Email, count);
      await mailsSettled(world);
      await passTime('15 minutes');
    }

    const limited = await admin.post(usersPath, sent);

    expect(limited.status).to.equal(429);
    expect(Number(limited.headers.get('retry-after'))).to.be.within(3_600, 86_400);
    expect((await admin.post(usersPath, invitation())).status, 'another address').to.equal(201);
    await passTime('24 hours');
    expect((await admin.post(usersPath, sent)).status).to.equal(201);
  });

  it('a registration mail says for whom it was requested and when, and the name in it is not a link', async () => {
    const email = 'reader@people.test';
    const earliest = new Date();
    await register('192.0.2.1', email, {
      firstName: 'Go to https://evil.test/x now',
      lastName: "O'Hara-Smith",
    });
    await mail.waitForToken(email);
    const content = mail.messagesTo(email)[0]?.content ?? '';
    expect(content).to.match(/^First name: Go to https evil test x now\r$/m);
    expect(content).to.match(/^Last name: O'Hara-Smith\r$/m);
    const [, day, time] = /^Registered on (\S+) at (\S+) UTC\r$/m.exec(content) ?? [];
    const said = Date.parse(`${day}T${time}Z`);
    expect(said).to.be.within(earliest.getTime() - 60_000, Date.now());
    expect(content).to.not.include('evil.test');

    const long = 'long@people.test';
    await register('192.0.2.1', long, { firstName: 'x'.repeat(255) });
    await eventually(() => tokenIn(mail.messagesTo(long)[0]?.content));
    expect(mail.messagesTo(long)[0]?.content).to.match(/^First name: x{50}\r$/m);
  });
});
