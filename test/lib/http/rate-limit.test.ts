import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { ConfigError } from '../../../src/lib/config/config-error.ts';
import { type ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { createWorld, type World } from '../../support/world.ts';
import { type HeldTimers, holdTimers } from './held-timers.ts';

const anyPath = '/api/v1/EntityStatus'; // 403 without a tenant, which the rate limit precedes
const login = '/api/v1/auth/login';
const rejectionDelayMs = 2_000;

describe('rate limits', function () {
  this.slow(4_000);
  let world: World;
  /**
   * A client of a server with the limits of the service description, behind a proxy that names
   * the client address.
   */
  let limited: Client;
  let held: HeldTimers;

  before(async () => {
    world = await createWorld();
    limited = new Client(
      (await world.startAnotherServer({ ...described, TRUSTED_PROXIES: '127.0.0.1' })).url,
    );
    // Only `world.clock` moves the time, so the speed of the machine does not affect a window.
    world.clock.stoppedAtMs = Math.floor(performance.now());
  });
  after(async () => {
    await world?.close();
  });
  beforeEach(() => {
    held = holdTimers(rejectionDelayMs);
  });
  afterEach(() => {
    held.restore();
    world.clock.offsetSeconds = 0;
    world.clock.monotonicOffsetMs = 0;
  });

  const from = (address: string) => ({ 'X-Forwarded-For': address });
  const logIn = (
    address: string,
    body: unknown = world.acme.admin,
    tenant = world.acme.guid,
  ): Promise<ApiResponse> => limited.post(login, body, { ...from(address), 'X-Tenant': tenant });

  /** Waits until the rejection of a request is delayed, then ends the delay. */
  async function delayed(request: Promise<ApiResponse>): Promise<ApiResponse> {
    await eventually(() => held.size === 1, 30_000);
    held.release();
    return request;
  }

  describe('limit of all requests', () => {
    it('a client may send 500 requests in a minute, and every response has the state of the limit', async () => {
      const headers = from('198.51.100.1');
      const first = await limited.get(anyPath, headers);
      expect(limitOf(first)).to.deep.equal({ limit: 500, remaining: 499, reset: 60 });
      const responses = await Promise.all(
        Array.from({ length: 549 }, () => limited.get(anyPath, headers)),
      );
      expect(statusCounts(responses)).to.deep.equal({ 403: 499, 429: 50 });

      const rejected = await limited.get('/docs/nothing', headers);
      expect(rejected.status).to.equal(429);
      expect(rejected.headers.get('content-type')).to.equal('application/problem+json');
      expect(rejected.body).to.include({
        status: 429,
        code: 'rate_limited',
        type: '/docs/errors#rate_limited',
      });
      expect(rejected.headers.get('retry-after')).to.equal('60');
      expect(limitOf(rejected)).to.deep.equal({ limit: 500, remaining: 0, reset: 60 });
      expect(
        [...rejected.headers.keys()].filter(name => name.startsWith('x-ratelimit')),
      ).to.deep.equal([]);
      expect((await limited.get(anyPath, from('198.51.100.2'))).status).to.equal(403);
    });

    it('the window slides: a burst after the turn of a minute is rejected', async () => {
      const { url } = await world.startAnotherServer({ RATE_LIMIT_GLOBAL: '40/60s' });
      const burst = () =>
        Promise.all(Array.from({ length: 40 }, () => new Client(url).get(anyPath)));
      world.clock.monotonicOffsetMs = 59_000;
      expect(statusCounts(await burst())).to.deep.equal({ 403: 40 });
      world.clock.monotonicOffsetMs = 61_000;
      expect(statusCounts(await burst())).to.deep.equal({ 429: 40 });
      world.clock.monotonicOffsetMs = (59 + 60 + 3) * 1_000;
      expect(statusCounts(await burst())).to.deep.equal({ 403: 40 });
    });

    it('a jump of the wall clock, forward or back, changes neither the count nor the time until the limit is reset', async () => {
      const headers = from('198.51.100.90');
      await limited.get(anyPath, headers);

      for (const offsetSeconds of [86_400, -86_400]) {
        world.clock.offsetSeconds = offsetSeconds;
        const { remaining, reset } = limitOf(await limited.get(anyPath, headers));
        expect(remaining).to.equal(offsetSeconds > 0 ? 498 : 497);
        expect(reset).to.be.within(1, 60);
      }
    });

    it('all requests of an untrusted peer count as one client, whatever address its headers name', async () => {
      const direct = new Client(
        (await world.startAnotherServer({ RATE_LIMIT_GLOBAL: '60/60s' })).url,
      );

      const spoofs = [
        'X-Forwarded-For',
        'Forwarded',
        'X-Real-IP',
        'X-Client-IP',
        'CF-Connecting-IP',
        'True-Client-IP',
      ];

      const requests = [];
      for (let i = 0; i < 90; i++) {
        const address = `203.0.${i >> 8}.${i & 255}`;
        const name = spoofs[i % spoofs.length]!;
        requests.push(
          direct.get(anyPath, { [name]: name === 'Forwarded' ? `for=${address}` : address }),
        );
      }

      expect(statusCounts(await Promise.all(requests))).to.deep.equal({ 403: 60, 429: 30 });
    });

    it('all addresses of an IPv6 /64 network count as one client', async () => {
      const remaining = async (address: string) =>
        limitOf(await limited.get(anyPath, from(address))).remaining;
      expect(await remaining('2001:db8:1:2::1')).to.equal(499);
      expect(await remaining('2001:DB8:1:2:ffff:0:0:9')).to.equal(498);
      expect(await remaining('2001:db8:1:3::1')).to.equal(499);
    });

    it('the requests of an IPv6 /56 and /48 network are limited to 4 and 16 times the rate of one client', async () => {
      const { url } = await world.startAnotherServer({
        RATE_LIMIT_GLOBAL: '1/60s',
        TRUSTED_PROXIES: '127.0.0.1',
      });
      const client = new Client(url);
      const send = (address: string) => client.get(anyPath, from(address));

      for (let i = 0; i < 4; i++) expect((await send(`2001:db8:7:${i}::1`)).status).to.equal(403);
      const rejected = await send('2001:db8:7:4::1');
      expect(rejected.status).to.equal(429);
      expect(rejected.body.code).to.equal('rate_limited');
      expect(limitOf(rejected)).to.include({ limit: 4, remaining: 0 });
      expect(Number(rejected.headers.get('retry-after'))).to.be.within(1, 60);

      for (let i = 0; i < 16; i++) {
        expect((await send(`2001:db8:8:${i.toString(16)}00::1`)).status).to.equal(403);
      }
      expect(limitOf(await send('2001:db8:8:1000::1'))).to.include({ limit: 16, remaining: 0 });
      expect((await send('2001:db8:9::1')).status, 'the next /48').to.equal(403);
    });

    it('requests that an IPv6 /64 network sends beyond its rate are not counted for its /56 network', async () => {
      const { url } = await world.startAnotherServer({
        RATE_LIMIT_GLOBAL: '3/60s',
        TRUSTED_PROXIES: '127.0.0.1',
      });
      const client = new Client(url);
      const flood = Array.from({ length: 40 }, () => client.get(anyPath, from('2001:db8:10::1')));
      expect(statusCounts(await Promise.all(flood))).to.deep.equal({ 403: 3, 429: 37 });
      expect((await client.get(anyPath, from('2001:db8:10:1::1'))).status).to.equal(403);
    });
  });

  describe('limit of logins', () => {
    it('a client may log in to an account five times in 15 minutes, and the sixth is rejected after 2 s', async () => {
      for (let left = 4; left >= 0; left--) {
        const response = await logIn('198.51.100.10');
        expect(response.status).to.equal(200);
        expect(limitOf(response)).to.deep.equal({ limit: 5, remaining: left, reset: 900 });
      }
      const rejected = await delayed(logIn('198.51.100.10'));
      expect(rejected.status).to.equal(429);
      expect(rejected.body.code).to.equal('rate_limited');
      expect(rejected.headers.get('retry-after')).to.equal('900');
    });

    it('logins with wrong and right passwords, at known and unknown tenants, count before any look-up', async () => {
      const { email } = world.acme.admin;
      const attempts = [
        logIn('198.51.100.11', { email, password: 'not this one' }),
        logIn('198.51.100.11', { email, password: 'x' }, 'no tenant'),
        logIn('198.51.100.11', { email: email.toUpperCase(), password: 'x' }, world.globex.guid),
        logIn('198.51.100.11', { email: `  ${email} `, password: '' }),
        logIn('198.51.100.11', { email }),
      ];

      expect((await Promise.all(attempts)).map(({ status }) => status)).to.deep.equal([
        401, 403, 401, 400, 400,
      ]);

      expect(
        (await delayed(logIn('198.51.100.11', { email, password: 'x' }, 'no tenant'))).status,
      ).to.equal(429);
    });

    it('e-mail addresses that some mail providers treat as equal are separate accounts', async () => {
      const emails = [
        'a+1@x.test',
        'a@x.test',
        'a.b@x.test',
        'ab@x.test',
        'a*@x.test',
        'a\\n*1@x.test',
      ];

      for (const email of emails) {
        const first = await logIn('198.51.100.12', { email, password: 'x' });
        expect(limitOf(first).remaining, email).to.equal(4);
      }
    });

    it('login bodies without a readable e-mail address count as one account', async () => {
      const tooLong = `${'a'.repeat(10_000)}@x.test`;
      const bodies = [
        { password: 'x' },
        { email: 5 },
        { email: ['a@x.test'] },
        '{"email":',
        { email: tooLong },
      ];

      const statuses = [];
      for (const body of bodies) statuses.push((await logIn('198.51.100.13', body)).status);
      expect(statuses).to.deep.equal([400, 400, 400, 400, 413]);

      const others = await Promise.all([
        delayed(logIn('198.51.100.13', '')),
        logIn('198.51.100.13', world.acme.admin),
      ]);
      expect(others.map(({ status }) => status)).to.deep.equal([429, 200]);
    });

    it('a sixth login is still rejected after 14:59 minutes, and allowed after 15 minutes', async () => {
      const five = Array.from({ length: 5 }, () => logIn('198.51.100.14'));
      expect(statusCounts(await Promise.all(five))).to.deep.equal({ 200: 5 });
      world.clock.monotonicOffsetMs = (14 * 60 + 59) * 1_000;
      expect((await delayed(logIn('198.51.100.14'))).status).to.equal(429);
      world.clock.monotonicOffsetMs = 15 * 60_000;
      expect((await logIn('198.51.100.14')).status).to.equal(200);
    });
  });

  it('RateLimit and RateLimit-Policy have an item for each limit that counts the request', async () => {
    const read = await limited.get(anyPath, from('198.51.100.30'));
    const attempt = await logIn('198.51.100.30');

    expect(fieldsOf(read)).to.deep.equal({
      state: '"Global";r=499;t=60',
      policy: '"Global";q=500;w=60',
    });
    expect(fieldsOf(attempt)).to.deep.equal({
      state: '"Global";r=498;t=60, "Login";r=4;t=900',
      policy: '"Global";q=500;w=60, "Login";q=5;w=900',
    });
    expect(limitOf(attempt)).to.deep.equal({ limit: 5, remaining: 4, reset: 900 });
  });

  it('a rejected request names the limit that rejects it, with nothing left until Retry-After', async () => {
    const headers = from('198.51.100.31');
    for (let number = 0; number < 5; number++) {
      await limited.get('/api/Data/GenerateToken', headers);
    }

    const rejected = await limited.get('/api/Data/GenerateToken', headers);

    expect(rejected.status).to.equal(429);
    expect(fieldsOf(rejected)).to.deep.equal({
      state: '"Global";r=494;t=60, "GenerateToken";r=0;t=60',
      policy: '"Global";q=500;w=60, "GenerateToken";q=5;w=60',
    });
    expect(rejected.headers.get('retry-after')).to.equal('60');
  });

  it('an address whose larger IPv6 network has reached its limit is told so under the name of that network', async () => {
    for (let subnet = 0; subnet < 5; subnet++) {
      for (let number = 0; number < (subnet < 4 ? 5 : 1); number++) {
        const response = await limited.get(
          '/api/Data/GenerateToken',
          from(`2001:db8:31:${subnet}::1`),
        );
        if (subnet < 4) continue;

        expect(response.status).to.equal(429);
        expect(fieldsOf(response)).to.deep.equal({
          state: '"Global";r=499;t=60, "GenerateToken";r=4;t=60, "GenerateTokenNetwork";r=0;t=60',
          policy: '"Global";q=500;w=60, "GenerateToken";q=5;w=60, "GenerateTokenNetwork";q=20;w=60',
        });
      }
    }
  });

  it('an address may make ten account changes in 15 minutes, and the next waits 2 s for its rejection', async () => {
    const paths = ['register', 'reset-password', 'confirm'].map(name => `/api/v1/auth/${name}`);
    const change = (i: number) => limited.post(paths[i % 3]!, {}, from('198.51.100.20'));
    const responses = [];
    for (let i = 0; i < 10; i++) responses.push(await change(i));
    expect(statusCounts(responses)).to.deep.equal({ 403: 10 });
    const rejected = await delayed(change(10));
    expect(rejected.status).to.equal(429);
    expect(limitOf(rejected)).to.include({ limit: 10, remaining: 0 });
    expect((await logIn('198.51.100.20')).status).to.equal(200);
  });

  it('an address may get five tokens for old clients in a minute, and the sixth is rejected at once', async () => {
    const headers = from('198.51.100.21');
    for (let i = 0; i < 20; i++) expect((await limited.get(anyPath, headers)).status).to.equal(403);

    const getToken = () => limited.get('/api/Data/GenerateToken', headers);
    const responses = [];
    for (let i = 0; i < 5; i++) responses.push(await getToken());
    expect(statusCounts(responses)).to.deep.equal({ 401: 5 });

    // a delayed rejection would never arrive: this test ends no delay
    const rejected = await getToken();
    expect(rejected.status).to.equal(429);
    expect(rejected.headers.get('retry-after')).to.equal('60');
    expect(limitOf(await limited.get(anyPath, headers))).to.include({ limit: 500, remaining: 473 });
  });

  it('a limit is a number of requests and a time, and cannot be switched off', () => {
    const { rateLimits } = readConfig({
      ...ofOwnServer,
      RATE_LIMIT_GLOBAL: '100/2h',
      RATE_LIMIT_TOKEN: ' 1/30s ',
    });
    expect(rateLimits).to.deep.equal({
      global: { max: 100, windowMs: 7_200_000 },
      login: { max: 5, windowMs: 900_000 },
      failures: { max: 100, windowMs: 86_400_000 },
      mails: { max: 3, windowMs: 900_000 },
      people: { max: 1_000, windowMs: 86_400_000 },
      account: { max: 10, windowMs: 900_000 },
      token: { max: 1, windowMs: 30_000 },
    });

    for (const wrong of [
      'off',
      '0/60s',
      '5',
      '5/15',
      '5/0m',
      '-5/1m',
      '1e3/1s',
      '5/15d',
      '5 / 15m',
    ]) {
      expect(() => readConfig({ RATE_LIMIT_LOGIN: wrong }), wrong).to.throw(
        ConfigError,
        /^RATE_LIMIT_LOGIN must be/,
      );
    }

    expect(() => readConfig({ REDIS_URL: 'http://redis' })).to.throw(
      ConfigError,
      /^REDIS_URL must be/,
    );
  });
});

/** The limit of logins is higher on the embedded PostgreSQL. */
const ofOwnServer = {
  DATABASE_URL: 'postgres://localhost/control',
  MASTER_KEY: Buffer.alloc(32, 1).toString('base64'),
};

const described = {
  RATE_LIMIT_GLOBAL: '500/60s',
  RATE_LIMIT_LOGIN: '5/15m',
  RATE_LIMIT_FAILURES: '100/24h',
  RATE_LIMIT_MAILS: '3/15m',
  RATE_LIMIT_PEOPLE: '1000/24h',
  RATE_LIMIT_ACCOUNT: '10/15m',
  RATE_LIMIT_TOKEN: '5/60s',
};

function limitOf({ headers }: ApiResponse) {
  const [limit, remaining, reset] = ['limit', 'remaining', 'reset'].map(name =>
    Number(headers.get(`ratelimit-${name}`)),
  );
  return { limit, remaining, reset };
}

/** The structured fields of a response. */
function fieldsOf({ headers }: ApiResponse) {
  return { state: headers.get('ratelimit'), policy: headers.get('ratelimit-policy') };
}

/** Counts the responses with each status. */
function statusCounts(responses: ApiResponse[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of responses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}
