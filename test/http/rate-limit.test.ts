import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import { ConfigError, readConfig } from '../../src/config.ts';
import { type ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type World } from '../support/world.ts';

const anything = '/api/v1/EntityStatus'; // 403 without a tenant: the limit comes first
const login = '/api/v1/auth/login';

describe('rate limits', function () {
  this.slow(4_000);
  let world: World;
  /** The limits of the service description, behind a proxy that says who calls. */
  let limited: Client;

  before(async () => {
    world = await createWorld();
    limited = new Client((await world.startAnotherServer({ ...described, TRUSTED_PROXIES: '127.0.0.1' })).url);
  });
  after(() => world?.close());
  afterEach(() => {
    world.clock.offsetSeconds = 0;
  });

  const at = (address: string) => ({ 'X-Forwarded-For': address });
  const attempt = (address: string, body: unknown = world.acme.admin, tenant = world.acme.guid): Promise<ApiResponse> =>
    limited.post(login, body, { ...at(address), 'X-Tenant': tenant });

  describe('of all requests', () => {
    it('is 500 in a minute, told in every answer', async () => {
      const headers = at('198.51.100.1');
      const first = await limited.get(anything, headers);
      expect(limitOf(first)).to.deep.equal({ limit: 500, remaining: 499, reset: 60 });
      const answers = await Promise.all(Array.from({ length: 549 }, () => limited.get(anything, headers)));
      expect(count(answers)).to.deep.equal({ 403: 499, 429: 50 });

      const refused = await limited.get('/docs/nothing', headers);
      expect(refused.status).to.equal(429);
      expect(refused.headers.get('content-type')).to.equal('application/problem+json');
      expect(refused.body).to.include({ status: 429, code: 'rate_limited', type: '/docs/errors#rate_limited' });
      expect(Number(refused.headers.get('retry-after'))).to.be.within(1, 60);
      expect(limitOf(refused)).to.include({ limit: 500, remaining: 0 });
      expect([...refused.headers.keys()].filter(name => name.startsWith('x-ratelimit'))).to.deep.equal([]);
      expect((await limited.get(anything, at('198.51.100.2'))).status).to.equal(403);
    });

    it('slides: a burst after the turn of a minute is refused', async () => {
      const headers = at('198.51.100.3');
      const burst = () => Promise.all(Array.from({ length: 500 }, () => limited.get(anything, headers)));
      world.clock.offsetSeconds = 59;
      expect(count(await burst())).to.deep.equal({ 403: 500 });
      world.clock.offsetSeconds = 61;
      expect(count(await burst())).to.deep.equal({ 429: 500 });
      world.clock.offsetSeconds = 59 + 60 + 3;
      expect(count(await burst())).to.deep.equal({ 403: 500 });
    });

    it('counts the requests of one peer together, whatever headers it writes', async () => {
      const direct = new Client((await world.startAnotherServer(described)).url);
      const spoofs = ['X-Forwarded-For', 'Forwarded', 'X-Real-IP', 'X-Client-IP', 'CF-Connecting-IP', 'True-Client-IP'];
      const answers = [];
      for (let i = 0; i < 600; i++) {
        const address = `203.0.${i >> 8}.${i & 255}`;
        const name = spoofs[i % spoofs.length]!;
        answers.push(direct.get(anything, { [name]: name === 'Forwarded' ? `for=${address}` : address }));
      }
      expect(count(await Promise.all(answers))).to.deep.equal({ 403: 500, 429: 100 });
    });

    it('takes all addresses of an IPv6 network of 64 bits for one client', async () => {
      const remaining = async (address: string) => limitOf(await limited.get(anything, at(address))).remaining;
      expect(await remaining('2001:db8:1:2::1')).to.equal(499);
      expect(await remaining('2001:DB8:1:2:ffff:0:0:9')).to.equal(498);
      expect(await remaining('2001:db8:1:3::1')).to.equal(499);
    });
  });

  describe('of logins', () => {
    it('lets five of an address and an account in 15 minutes; the sixth waits two seconds, and is refused', async () => {
      for (let left = 4; left >= 0; left--) {
        const answer = await attempt('198.51.100.10');
        expect(answer.status).to.equal(200);
        expect(limitOf(answer)).to.deep.equal({ limit: 5, remaining: left, reset: 900 });
      }
      const [refused, ms] = await timed(() => attempt('198.51.100.10'));
      expect(refused.status).to.equal(429);
      expect(refused.body.code).to.equal('rate_limited');
      expect(Number(refused.headers.get('retry-after'))).to.be.within(890, 900);
      expect(ms).to.be.within(1_990, 3_000);
    });

    it('counts wrong and right passwords, known and unknown tenants alike, before any of them is looked up', async () => {
      const { email } = world.acme.admin;
      const tries = [
        attempt('198.51.100.11', { email, password: 'not this one' }),
        attempt('198.51.100.11', { email, password: 'x' }, 'no tenant'),
        attempt('198.51.100.11', { email: email.toUpperCase(), password: 'x' }, world.globex.guid),
        attempt('198.51.100.11', { email: `  ${email} `, password: '' }),
        attempt('198.51.100.11', { email }),
      ];
      expect((await Promise.all(tries)).map(answer => answer.status)).to.deep.equal([401, 403, 401, 400, 400]);
      expect((await attempt('198.51.100.11', { email, password: 'x' }, 'no tenant')).status).to.equal(429);
    });

    it('counts accounts apart, and guesses nothing about how mail providers read addresses', async () => {
      const emails = ['a+1@x.test', 'a@x.test', 'a.b@x.test', 'ab@x.test', 'a*@x.test', 'a\\n*1@x.test'];
      for (const email of emails) {
        const first = await attempt('198.51.100.12', { email, password: 'x' });
        expect(limitOf(first).remaining, email).to.equal(4);
      }
    });

    it('counts a body that names no account as one without e-mail address', async () => {
      const tooLong = `${'a'.repeat(10_000)}@x.test`;
      const bodies = [{ password: 'x' }, { email: 5 }, { email: ['a@x.test'] }, '{"email":', { email: tooLong }];
      const statuses = [];
      for (const body of bodies) statuses.push((await attempt('198.51.100.13', body)).status);
      expect(statuses).to.deep.equal([400, 400, 400, 400, 413]);
      const sixth = await Promise.all([attempt('198.51.100.13', ''), attempt('198.51.100.13', world.acme.admin)]);
      expect(sixth.map(answer => answer.status)).to.deep.equal([429, 200]);
    });

    it('slides: after 14:59 minutes it still refuses, after 15 it does not', async () => {
      const five = Array.from({ length: 5 }, () => attempt('198.51.100.14'));
      expect(count(await Promise.all(five))).to.deep.equal({ 200: 5 });
      world.clock.offsetSeconds = 14 * 60 + 55;
      expect((await attempt('198.51.100.14')).status).to.equal(429);
      world.clock.offsetSeconds = 15 * 60 + 1;
      expect((await attempt('198.51.100.14')).status).to.equal(200);
    });
  });

  describe('a refused login that waits', () => {
    let patient: Client;
    let stop: () => Promise<boolean>;
    const email = 'nobody@acme.test';
    before(async () => {
      const { service, url } = await world.startAnotherServer({ RATE_LIMIT_LOGIN: '1/15m' });
      patient = new Client(url);
      stop = () => service.stop();
      await patient.post(login, { email });
    });

    it('keeps nobody else waiting, not even 300 at once, and is forgotten when its client leaves', async () => {
      const user = (await world.login(world.acme)).at(patient.url);
      const sockets = await Promise.all(Array.from({ length: 300 }, () => openLogin(patient.url, email)));
      const times = [];
      for (let i = 0; i < 100; i++) {
        const [answer, ms] = await timed(() => user.get(anything));
        expect(answer.status).to.equal(200);
        times.push(ms);
      }
      expect(percentile(times, 0.95)).to.be.lessThan(50);
      const [health, ms] = await timed(() => fetch(`http://127.0.0.1:${world.service.managementPort}/health/live`));
      expect(health.status).to.equal(200);
      expect(ms).to.be.lessThan(50);

      const gone = () => world.logs.filter(line => line.includes('"status":499')).length;
      expect(gone(), 'all still wait').to.equal(0);
      for (const socket of sockets) socket.destroy();
      await eventually(() => gone() === 300, 1_000);
    });

    it('waits in a crowd of 500 at most; others are refused at once', async () => {
      const crowd = Array.from({ length: 600 }, () => timed(() => patient.post(login, { email })));
      const answers = await Promise.all(crowd);
      expect(count(answers.map(([answer]) => answer))).to.deep.equal({ 429: 600 });
      expect(answers.filter(([, ms]) => ms < 2_000)).to.have.length(100);
    });

    it('is answered at once when the service stops', async () => {
      const waiting = [1, 2, 3].map(() => timed(() => patient.post(login, { email })));
      await setTimeout(300);
      const stopped = stop();
      for (const [answer, ms] of await Promise.all(waiting)) {
        expect(answer.status).to.equal(429);
        expect(ms).to.be.lessThan(1_000);
      }
      expect(await stopped).to.equal(true);
    });
  });

  it('of account changes are ten in 15 minutes, of all kinds together; the next one waits two seconds, and is refused', async () => {
    const paths = ['register', 'reset-password', 'confirm'].map(name => `/api/v1/auth/${name}`);
    const change = (i: number) => limited.post(paths[i % 3]!, {}, at('198.51.100.20'));
    const answers = [];
    for (let i = 0; i < 10; i++) answers.push(await change(i));
    expect(count(answers)).to.deep.equal({ 403: 10 });
    const [refused, ms] = await timed(() => change(10));
    expect(refused.status).to.equal(429);
    expect(limitOf(refused)).to.include({ limit: 10, remaining: 0 });
    expect(ms).to.be.within(1_990, 3_000);
    expect((await attempt('198.51.100.20')).status).to.equal(200);
  });

  it('of tokens for old clients are five in a minute, beside all other requests; the sixth is refused at once', async () => {
    const headers = at('198.51.100.21');
    for (let i = 0; i < 20; i++) expect((await limited.get(anything, headers)).status).to.equal(403);
    const ask = () => limited.get('/api/Data/GenerateToken', headers);
    const answers = [];
    for (let i = 0; i < 5; i++) answers.push(await ask());
    expect(count(answers)).to.deep.equal({ 401: 5 });
    const [refused, ms] = await timed(ask);
    expect(refused.status).to.equal(429);
    expect(Number(refused.headers.get('retry-after'))).to.be.within(50, 60);
    expect(ms).to.be.lessThan(500);
    expect(limitOf(await limited.get(anything, headers))).to.include({ limit: 500, remaining: 473 });
  });

  it('are set by a number and a time, and can not be switched off', () => {
    const { rateLimits } = readConfig({ RATE_LIMIT_GLOBAL: '100/2h', RATE_LIMIT_TOKEN: ' 1/30s ' });
    expect(rateLimits).to.deep.equal({
      global: { max: 100, windowMs: 7_200_000 },
      login: { max: 5, windowMs: 900_000 },
      account: { max: 10, windowMs: 900_000 },
      token: { max: 1, windowMs: 30_000 },
    });
    for (const wrong of ['off', '0/60s', '5', '5/15', '5/0m', '-5/1m', '1e3/1s', '5/15d', '5 / 15m'])
      expect(() => readConfig({ RATE_LIMIT_LOGIN: wrong }), wrong).to.throw(ConfigError, /^RATE_LIMIT_LOGIN must be/);
    expect(() => readConfig({ REDIS_URL: 'http://redis' })).to.throw(ConfigError, /^REDIS_URL must be/);
  });
});

const described = {
  RATE_LIMIT_GLOBAL: '500/60s',
  RATE_LIMIT_LOGIN: '5/15m',
  RATE_LIMIT_ACCOUNT: '10/15m',
  RATE_LIMIT_TOKEN: '5/60s',
};

function limitOf({ headers }: ApiResponse) {
  const [limit, remaining, reset] = ['limit', 'remaining', 'reset'].map(name =>
    Number(headers.get(`ratelimit-${name}`)),
  );
  return { limit, remaining, reset };
}

/** How many answers have which status. */
function count(answers: ApiResponse[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

async function timed<T>(work: () => Promise<T>): Promise<[T, number]> {
  const started = performance.now();
  return [await work(), performance.now() - started];
}

function percentile(values: number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length * share)]!;
}

/** Sends a login, and does not wait for its answer. */
async function openLogin(url: string, email: string): Promise<Socket> {
  const body = JSON.stringify({ email });
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  const head = `POST ${login} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  socket.write(`${head}\r\n\r\n${body}`);
  return socket;
}
