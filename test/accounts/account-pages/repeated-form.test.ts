import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { Client } from '../../support/client.ts';
import { root } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { linkIn, startMailServer } from '../../support/mail-server.ts';
import { use } from '../../support/use.ts';
import { createWorld, type TestTenant } from '../../support/world.ts';
import { invitation, usersPath } from '../people/people-world.ts';

const first = 'three quiet rivers';
const second = 'four loud mountains';
const wrong = 'a password of nobody';

describe('a form of a link that is sent again', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));
  /** A process that limits logins, and one that limits failures. */
  let limited: { logins: string; failures: string };
  before(async () => {
    const options = { TRUSTED_PROXIES: '127.0.0.1' };
    const [logins, failures] = await Promise.all([
      world.startAnotherServer({ ...options, RATE_LIMIT_LOGIN: '5/15m' }),
      world.startAnotherServer({ ...options, RATE_LIMIT_FAILURES: '4/24h' }),
    ]);
    limited = { logins: logins.url, failures: failures.url };
  });

  let people = 0;
  async function invite(tenant: TestTenant): Promise<{ email: string; link: URL }> {
    const email = `person${++people}@pages.test`;
    const admin = await world.login(tenant);
    expect((await admin.post(usersPath, invitation({ Email: email }))).status).to.equal(201);
    return { email, link: await linkTo(email, 1) };
  }

  async function linkTo(email: string, count: number): Promise<URL> {
    return new URL(await eventually(() => linkIn(mail.messagesTo(email)[count - 1]?.content)));
  }

  async function requestReset(tenant: TestTenant, email: string, count: number): Promise<URL> {
    const headers = { 'X-Tenant': tenant.guid };
    await world.anonymous.post('/api/v1/auth/reset-password', { email }, headers);
    return linkTo(email, count);
  }

  async function send(
    link: URL,
    password: string,
    { url = world.url, address = '203.0.113.1' } = {},
  ): Promise<{ status: number; text: string }> {
    const { tenant = '', token = '' } = Object.fromEntries(link.searchParams);
    const response = await fetch(new URL(link.pathname, url), {
      method: 'POST',
      body: new URLSearchParams({ tenant, token, password, repeated: password }),
      headers: { 'X-Forwarded-For': address },
    });
    return { status: response.status, text: await response.text() };
  }

  const login = (
    url: string,
    tenant: TestTenant,
    email: string,
    password: string,
    address = '203.0.113.1',
  ) =>
    new Client(url).post(
      '/api/v1/auth/login',
      { email, password },
      { 'X-Tenant': tenant.guid, 'X-Forwarded-For': address },
    );

  it('the same password gets the page of success again, and another one does not', async () => {
    const { link } = await invite(world.acme);
    expect((await send(link, first)).status).to.equal(200);

    expect((await send(link, first)).status).to.equal(200);
    expect((await send(link, wrong)).status).to.equal(400);
  });

  it('a used link says nothing about a password that a later link, or anything but the link, has set', async () => {
    const { email, link: invited } = await invite(world.acme);
    await send(invited, first);
    const reset = await requestReset(world.acme, email, 2);
    expect((await send(reset, second)).status).to.equal(200);

    const present = await send(invited, second);
    const former = await send(invited, first);
    const neither = await send(invited, wrong);

    expect(present.status).to.equal(400);
    expect(present.text).to.equal(neither.text);
    expect(former.text).to.equal(neither.text);
    expect((await send(reset, second)).status, 'the link that has set it').to.equal(200);

    // Of two links of one kind that wait, the later one is used, and both count as used.
    const [third, fourth] = [
      await requestReset(world.acme, email, 3),
      await requestReset(world.acme, email, 4),
    ];
    expect((await send(fourth, first)).status).to.equal(200);
    expect((await send(third, first)).status).to.equal(400);
    expect((await send(reset, first)).status).to.equal(400);
  });

  it('a link of a tenant says nothing about the password of the same address in another tenant', async () => {
    const { link } = await invite(world.acme);
    await send(link, first);
    const foreign = new URL(link);
    foreign.searchParams.set('tenant', world.globex.guid);

    expect((await send(foreign, first)).status).to.equal(400);
  });

  it('a password that is tried by a used link counts for the client as a login does, in both directions', async () => {
    const url = limited.logins;
    const { email, link } = await invite(world.acme);
    await send(link, first, { url });

    for (let tries = 0; tries < 5; tries++) {
      expect((await send(link, wrong, { url })).status).to.equal(400);
    }

    const right = await send(link, first, { url });
    expect(right.status).to.equal(429);
    expect(right.text).to.include('Too many attempts');
    expect((await login(url, world.acme, email, first)).status).to.equal(429);
    expect((await send(link, first, { url, address: '203.0.113.2' })).status).to.equal(200);

    const { email: other, link: otherLink } = await invite(world.acme);
    await send(otherLink, first, { url });
    for (let tries = 0; tries < 5; tries++) {
      expect((await login(url, world.acme, other, wrong)).status).to.equal(401);
    }
    expect((await send(otherLink, first, { url })).status).to.equal(429);
  });

  it('a wrong password that is tried by a used link counts for the account, whatever the address of the client', async () => {
    const url = limited.failures;
    const { email, link } = await invite(world.globex);
    await send(link, first, { url, address: '198.51.100.200' });

    for (let n = 1; n <= 4; n++) {
      expect((await send(link, wrong, { url, address: `198.51.100.${n}` })).status).to.equal(400);
    }

    const elsewhere = { url, address: '198.51.100.99' };
    expect((await send(link, first, elsewhere)).status).to.equal(429);
    expect((await send(link, wrong, elsewhere)).status).to.equal(429);
    const refused = await login(url, world.globex, email, first, elsewhere.address);
    expect(refused.status).to.equal(429);
    const known = await login(url, world.globex, email, first, '198.51.100.200');
    expect(known.status, 'the network of the owner').to.equal(200);
  });

  it('a password is compared with a stored hash in places that count it alone: the login, a verification, and a link', async () => {
    const files = await readdir(join(root, 'src'), { recursive: true });
    const found: string[] = [];
    for (const file of files.filter(name => name.endsWith('.ts'))) {
      const text = await readFile(join(root, 'src', file), 'utf8');
      if (/passwords\s*\.verify\(|@node-rs\/argon2/.test(text)) found.push(file);
    }

    expect(found.sort()).to.deep.equal([
      'accounts/account-pages/account-pages.ts',
      'accounts/auth/login.ts',
      'accounts/auth/passwords.ts',
      'accounts/auth/verify.ts',
      // the start of a demo, which no client reaches
      'operator/first-start/read-demo-login.ts',
    ]);
  });
});
