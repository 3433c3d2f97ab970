import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import { createRateLimitStore } from '../../src/http/rate-limit/rate-limit-store.ts';
import type { RunningServer } from '../../src/server.ts';
import { type ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { redisInstalled, startRedis, type TestRedis } from '../support/redis.ts';
import { createWorld, type World } from '../support/world.ts';

const anything = '/api/v1/EntityStatus'; // 403 without a tenant: the limit comes first
const login = '/api/v1/auth/login';

if (!redisInstalled) console.log('no redis-server: the tests of rate limits over Redis are left out');
else describe('rate limits over Redis', overRedis);

function overRedis(this: Mocha.Suite): void {
  this.slow(4_000);
  let world: World;
  let redis: TestRedis;
  before(async () => {
    [world, redis] = await Promise.all([createWorld(), startRedis()]);
  });
  after(async () => {
    await world?.close();
    await redis?.close();
  });
  beforeEach(async () => {
    if (redis.admin.status !== 'ready') await redis.start();
    await redis.admin.flushall();
    world.logs.length = 0;
  });

  const running: RunningServer[] = [];
  const stopAll = () => Promise.all(running.splice(0).map(service => service.stop()));
  afterEach(async () => {
    redis.signal('SIGCONT');
    await stopAll();
  });

  /** A process of the service on this Redis. */
  const start = async (environment: Record<string, string> = {}) => {
    const settings = { REDIS_URL: redis.url, TRUSTED_PROXIES: '127.0.0.1', ...environment };
    const { service, url } = await world.startAnotherServer(settings);
    running.push(service);
    const client = new Client(url);
    return {
      get: (address: string) => client.get(anything, { 'X-Forwarded-For': address }),
      login: (address: string, email: string) => client.post(login, { email }, { 'X-Forwarded-For': address }),
    };
  };
  const events = () =>
    world.logs.map(line => JSON.parse(line).event).filter(event => String(event).startsWith('rate_limits'));
  const told = (event: string) => eventually(() => events().includes(event), 5_000);

  describe('that works', () => {
    it('are one count for all processes, in keys that tell nothing and belong to one limit each', async () => {
      const [one, two] = await Promise.all([
        start({ RATE_LIMIT_LOGIN: '5/15m' }),
        start({ RATE_LIMIT_LOGIN: '5/15m' }),
      ]);
      const email = 'spy\r\nFLUSHALL\r\n*{x}@acme.test';
      for (let i = 0; i < 5; i++) expect((await (i % 2 ? one : two).login('192.0.2.1', email)).status).to.equal(403);
      const sixth = await Promise.all([one.login('192.0.2.1', email), two.login('192.0.2.1', email)]);
      expect(count(sixth)).to.deep.equal({ 429: 2 });
      expect((await two.get('192.0.2.1')).headers.get('ratelimit-remaining')).to.equal('999992');

      for (const address of ['not an address', 'x'.repeat(4_000), ', ,', '192.0.2.9:80', 'fe80::1%eth0', '*'])
        expect((await one.get(address)).status).to.equal(403);
      const keys = (await redis.admin.keys('rl:[^p]*')).sort();
      expect(await redis.admin.keys('[^r]*')).to.deep.equal([]);
      expect(keys).to.have.length(3);
      expect(keys[0]).to.equal('rl:global:127.0.0.1');
      expect(keys[1]).to.equal('rl:global:192.0.2.1');
      expect(keys[2]).to.match(/^rl:login:[\w-]{32}$/);
      await stopAll();
      await eventually(async () => (await redis.connections()) === 0);
    });
  });

  describe('that is down when the service starts', () => {
    it('are counted by the process until it is up, and then by all', async () => {
      await redis.kill();
      const one = await start({ RATE_LIMIT_GLOBAL: '20/60s' });
      expect(events()).to.deep.equal(['rate_limits_own']);
      const { answers, p95 } = await load(one.get, '192.0.2.2', 300);
      expect(answers.filter(answer => answer.status === 403)).to.have.length(20);
      expect(count(answers)).to.have.all.keys('403', '429');
      expect(p95).to.be.lessThan(1_000);

      await redis.start();
      await told('rate_limits_shared');
      await one.get('192.0.2.3');
      expect(await redis.admin.exists('rl:global:192.0.2.3')).to.equal(1);
      expect(events()).to.deep.equal(['rate_limits_own', 'rate_limits_shared']);
    });
  });

  describe('that does not answer', () => {
    it('is waited for 80 ms by each of the first, and by no other', async () => {
      const windows = await createRateLimitStore({ redisUrl: redis.url, log: world.log });
      const hit = async (): Promise<number> => {
        const started = performance.now();
        await windows.hit('rl:test', { max: 1_000, windowMs: 60_000 });
        return performance.now() - started;
      };
      redis.signal('SIGSTOP');
      for (let i = 0; i < 2; i++)
        for (const ms of await Promise.all([hit(), hit()])) expect(ms).to.be.within(79, 2_000);
      // What waits for nothing comes before whatever the next turn of the event loop brings.
      for (let i = 0; i < 5; i++)
        expect(await Promise.race([hit().then(() => 'answered'), setImmediate('waited')])).to.equal('answered');
      redis.signal('SIGCONT');
      windows.close();
    });

    for (const [how, hang, back] of [
      ['CLIENT PAUSE', () => redis.admin.client('PAUSE', 1_200, 'ALL'), () => {}],
      ['a process that is stopped', () => redis.signal('SIGSTOP'), () => redis.signal('SIGCONT')],
    ] as const) {
      it(`keep requests waiting for a moment only (${how})`, async () => {
        const one = await start({ RATE_LIMIT_GLOBAL: '200/60s' });
        await load(one.get, '192.0.2.4', 200);
        await hang();
        const first = await load(one.get, '192.0.2.5', 150);
        const later = await load(one.get, '192.0.2.5', 500);
        expect(first.p95).to.be.lessThan(1_000);
        expect(later.p95).to.be.lessThan(1_000);
        const all = [...first.answers, ...later.answers];
        expect(all.filter(answer => answer.status === 403)).to.have.length(200);
        expect(count(all)).to.have.all.keys('403', '429');
        expect(events()[0]).to.equal('rate_limits_own');
        await back();
        await told('rate_limits_shared');
        expect(await redis.connections()).to.equal(1);
      });
    }
  });

  describe('that refuses to count', () => {
    const refusals: [string, () => Promise<unknown>, () => Promise<unknown>][] = [
      ['OOM', () => redis.admin.config('SET', 'maxmemory', 1), () => redis.admin.config('SET', 'maxmemory', 0)],
      ['READONLY', () => redis.admin.replicaof('127.0.0.1', 1), () => redis.admin.replicaof('NO', 'ONE')],
      [
        'NOAUTH',
        async () => {
          await redis.admin.config('SET', 'requirepass', 'secret');
          await redis.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        },
        () => redis.admin.config('SET', 'requirepass', ''),
      ],
    ];
    for (const [name, breakIt, mendIt] of refusals) {
      it(`are counted by the process (${name})`, async () => {
        const one = await start({ RATE_LIMIT_GLOBAL: '20/60s' });
        await load(one.get, '192.0.2.6', 10);
        await breakIt();
        try {
          const { answers, p95 } = await load(one.get, '192.0.2.6', 100);
          expect(count(answers)).to.deep.equal({ 403: 10, 429: 90 });
          expect(p95).to.be.lessThan(1_000);
          await load(one.get, '192.0.2.7', 10);
        } finally {
          await mendIt();
        }
        await told('rate_limits_shared');
        expect(events()).to.deep.equal(['rate_limits_own', 'rate_limits_shared']);
      });
    }

    it('are counted by the process (LOADING and MISCONF, to all that is asked)', async () => {
      for (const error of ['LOADING Redis is loading the dataset in memory', 'MISCONF Errors writing to the disk']) {
        const fake = await answeringAll(`-${error}\r\n`);
        const one = await start({ RATE_LIMIT_GLOBAL: '20/60s', REDIS_URL: fake.url });
        const { answers, p95 } = await load(one.get, '192.0.2.8', 100);
        expect(count(answers)).to.deep.equal({ 403: 20, 429: 80 });
        expect(p95).to.be.lessThan(1_000);
        await stopAll();
        fake.close();
      }
      expect(events()).to.deep.equal(['rate_limits_own', 'rate_limits_own']);
    });
  });

  describe('that is killed and started again', () => {
    it('hold under load: no failure, and not one request too many', async () => {
      const one = await start({ RATE_LIMIT_GLOBAL: '400/60s' });
      let over = false;
      const toggled = (async () => {
        for (let i = 0; i < 3; i++) {
          await setTimeout(250);
          await redis.kill();
          await setTimeout(250);
          await redis.start();
          await told('rate_limits_shared');
        }
        over = true;
      })();
      const answers: ApiResponse[] = [];
      const times: number[] = [];
      const clients = Array.from({ length: 16 }, async () => {
        while (!over) {
          const started = performance.now();
          answers.push(await one.get('192.0.2.10'));
          times.push(performance.now() - started);
          if (answers.length < 600) await setTimeout(20);
        }
      });
      await Promise.all([toggled, ...clients]);
      expect(count(answers)).to.have.all.keys('403', '429');
      expect(answers.filter(answer => answer.status === 403)).to.have.length(400);
      expect(percentile(times, 0.95)).to.be.lessThan(1_000);
    });

    it('20 times leaves one connection, and a count that is shared again', async () => {
      const warnings: Error[] = [];
      const warn = (warning: Error) => warnings.push(warning);
      process.on('warning', warn);
      const one = await start();
      for (let i = 0; i < 20; i++) {
        await redis.kill();
        await one.get('192.0.2.11');
        await redis.start();
        await one.get('192.0.2.11');
      }
      await eventually(async () => {
        await one.get('192.0.2.12');
        return (await redis.admin.exists('rl:global:192.0.2.12')) === 1;
      });
      expect(await redis.connections()).to.equal(1);
      expect(warnings).to.deep.equal([]);
      process.off('warning', warn);
      await stopAll();
      await eventually(async () => (await redis.connections()) === 0);
    });
  });
}

/** Sends requests of one client, ten at a time, and tells what they were answered and how long 95 % of them took. */
async function load(get: (address: string) => Promise<ApiResponse>, address: string, requests: number) {
  const answers: ApiResponse[] = [];
  const times: number[] = [];
  const clients = Array.from({ length: 10 }, async () => {
    while (requests-- > 0) {
      const started = performance.now();
      answers.push(await get(address));
      times.push(performance.now() - started);
    }
  });
  await Promise.all(clients);
  return { answers, p95: percentile(times, 0.95) };
}

function percentile(values: number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length * share)]!;
}

/** How many answers have which status. */
function count(answers: ApiResponse[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** A Redis that says one thing to everything. */
async function answeringAll(reply: string): Promise<{ url: string; close(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer(socket => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', data => socket.write(reply.repeat(String(data).match(/^\*\d/gm)?.length ?? 1)));
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `redis://127.0.0.1:${(server.address() as { port: number }).port}`,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
