import { expect } from 'chai';
import { type ApiResponse, Client } from '../support/client.ts';
import { useWorld } from '../support/world.ts';

const addresses = 30;
const failures = 100; // to each of two accounts; one takes a password hash of 21 ms or more

describe('drill: failed logins with the default limits', () => {
  const world = useWorld();
  let url: string;

  before(async () => {
    // The limits are those by default, not the high ones of the tests.
    const limits = { RATE_LIMIT_GLOBAL: '', RATE_LIMIT_LOGIN: '', RATE_LIMIT_FAILURES: '' };
    ({ url } = await world.startAnotherServer({ ...limits, TRUSTED_PROXIES: '127.0.0.1' }));
  });

  const login = (
    address: string,
    email: string,
    password = 'wrong password',
  ): Promise<ApiResponse> =>
    new Client(url).post(
      '/api/v1/auth/login',
      { email, password },
      { 'X-Tenant': world.acme.guid, 'X-Forwarded-For': address },
    );

  it('100 failed logins from 30 addresses block the 101st, to a known and to an unknown account', async () => {
    const { email, password } = world.acme.admin;
    expect((await login('203.0.113.1', email, password)).status).to.equal(200);

    for (const account of [email, 'nobody@acme.test']) {
      for (let i = 0; i < failures; i += 20) {
        const batch = Array.from({ length: 20 }, (_, j) =>
          login(`198.51.100.${(i + j) % addresses}`, account),
        );
        for (const { status } of await Promise.all(batch)) expect(status).to.equal(401);
      }

      const refused = await login('198.51.100.99', account, password);
      expect(refused.status).to.equal(429);
      expect(refused.body.code).to.equal('rate_limited');
      expect(refused.headers.get('ratelimit-limit')).to.equal(String(failures));
    }

    expect((await login('203.0.113.1', email, password)).status, 'a known network').to.equal(200);
  });
});
