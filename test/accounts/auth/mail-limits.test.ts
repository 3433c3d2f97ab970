import { expect } from 'chai';
import { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { startMailServer, tokenIn } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';

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

  it('an address receives at most 12 registration mails in 15 minutes, however many clients ask', async () => {
    const email = 'flooded@people.test';
    for (let client = 0; client < 4; client++) {
      for (let mailed = 1; mailed <= 3; mailed++) {
        await registerMailed(`198.51.100.${client}`, email, 3 * client + mailed);
      }
    }
    await register('198.51.100.99', email);
    await mailsSettled(world);
    expect(mail.messagesTo(email)).to.have.length(12);
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
