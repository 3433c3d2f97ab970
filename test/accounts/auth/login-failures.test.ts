import { expect } from 'chai';
import { type ApiResponse, Client } from '../../support/client.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant } from '../../support/world.ts';

const path = '/api/v1/auth/login';

describe('limit of failed logins to one account', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));
  let url: string;

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);
    ({ url } = await world.startAnotherServer({
      TRUSTED_PROXIES: '127.0.0.1',
      RATE_LIMIT_FAILURES: '8/24h',
    }));
  });

  const login = (
    tenant: TestTenant,
    address: string,
    email: string,
    password = 'wrong password',
  ): Promise<ApiResponse> =>
    new Client(url).post(
      path,
      { email, password },
      { 'X-Tenant': tenant.guid, 'X-Forwarded-For': address },
    );
  const expectLimited = (response: ApiResponse): void => {
    expect(response.status).to.equal(429);
    expect(response.body.code).to.equal('rate_limited');
    expect(response.headers.get('ratelimit-limit')).to.equal('8');
    expect(response.headers.get('ratelimit-remaining')).to.equal('0');
    expect(response.headers.get('ratelimit')).to.match(/, "LoginFailures";r=0;t=\d+$/);
    expect(response.headers.get('ratelimit-policy')).to.match(/, "LoginFailures";q=8;w=\d+$/);
    expect(Number(response.headers.get('retry-after'))).to.be.within(80_000, 86_400);
  };
  /** Fails 8 times, each time from another address. */
  const failFromManyAddresses = async (email: string): Promise<void> => {
    for (let i = 1; i <= 8; i++) {
      expect((await login(world.acme, `198.51.100.${i}`, email)).status).to.equal(401);
    }
  };

  it('too many failed logins to a known or unknown account block logins from new addresses with 429', async () => {
    const { email, password } = world.acme.admin;
    expect((await login(world.acme, '203.0.113.7', email, password)).status).to.equal(200);
    const unknown = 'nobody@acme.test';
    await Promise.all([failFromManyAddresses(email), failFromManyAddresses(unknown)]);
    const [known, other] = await Promise.all([
      login(world.acme, '198.51.100.77', email.toUpperCase(), password),
      login(world.acme, '198.51.100.77', unknown),
    ]);
    expectLimited(known);
    expectLimited(other);
    expect(known.body.title).to.equal(other.body.title);

    // A network that has logged in before still can, and another account and the same address
    // of another tenant can.
    expect((await login(world.acme, '203.0.113.7', email, password)).status).to.equal(200);
    expect((await login(world.acme, '203.0.113.7', email)).status).to.equal(401);
    expect((await login(world.acme, '198.51.100.78', 'other@acme.test')).status).to.equal(401);
    expect((await login(world.globex, '198.51.100.78', email)).status).to.equal(401);

    // A day later everybody can try again. A month after its last login, a network is no longer
    // known.
    world.clock.monotonicOffsetMs += (24 * 3_600 + 5_000) * 1_000;
    expect((await login(world.acme, '198.51.100.79', email)).status).to.equal(401);
    world.clock.monotonicOffsetMs += (24 * 3_600 + 5_000) * 1_000;
    await controlSql(world, `update login_networks set last_login_at = now() - interval '31 days'`);
    await failFromManyAddresses(email);
    expectLimited(await login(world.acme, '203.0.113.7', email, password));
  });

  it("a confirmed registration and a reset password unblock the network of the account's owner", async () => {
    const email = 'owner@people.test';
    const post = (route: string, body: object, address: string): Promise<ApiResponse> =>
      new Client(url).post(`/api/v1/auth/${route}`, body, {
        'X-Tenant': world.acme.guid,
        'X-Forwarded-For': address,
      });
    const names = { firstName: 'Olga', lastName: 'Owner' };
    const first = { email, password: 'the first password' };
    expect((await post('register', { ...first, ...names }, '203.0.113.20')).status).to.equal(202);
    await failFromManyAddresses(email);
    const token = await mail.waitForToken(email);
    expectLimited(await login(world.acme, '203.0.113.20', email, first.password));
    expect((await post('confirm', { token }, '203.0.113.20')).status).to.equal(204);
    expect((await login(world.acme, '203.0.113.20', email, first.password)).status).to.equal(200);

    expectLimited(await login(world.acme, '203.0.113.21', email, first.password));
    await post('reset-password', { email }, '203.0.113.21');
    // a request proves nothing
    expectLimited(await login(world.acme, '203.0.113.21', email, first.password));
    const reset = { token: await mail.waitForToken(email, 2), newPassword: 'the second password' };
    expect((await post('reset-password', reset, '203.0.113.21')).status).to.equal(204);
    expect((await login(world.acme, '203.0.113.21', email, reset.newPassword)).status).to.equal(
      200,
    );
    expectLimited(await login(world.acme, '203.0.113.22', email, reset.newPassword));
  });

  it('a failed login is logged with a hash of its account, not with the e-mail address', async () => {
    world.logs.length = 0;
    const addresses = ['somebody@acme.test', 'Somebody@ACME.test', 'someone.else@acme.test'];
    for (const email of addresses) await login(world.acme, '192.0.2.1', email);

    const failed = world.logs
      .map(line => JSON.parse(line))
      .filter(({ event }) => event === 'login_failed');
    expect(failed).to.have.length(3);

    const [first, second, third] = failed;
    expect(first).to.include({ tenant: world.acme.guid, ip: '192.0.2.1' });
    expect(first.account)
      .to.match(/^[\w-]{22}$/)
      .and.to.equal(second.account);
    expect(third.account).to.not.equal(first.account);

    for (const line of world.logs) expect(line).to.not.match(/somebody|someone/i);
  });
});
