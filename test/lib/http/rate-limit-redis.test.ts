import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { readInstallationIdentity } from '../../../src/control/installation-id.ts';
import { createRateLimitStore } from '../../../src/lib/http/steps/rate-limit/rate-limit-store.ts';
import type { RunningServer } from '../../../src/service/server.ts';
import { type FaultProxy, startFaultProxy } from '../../faults/fault-proxy.ts';
import { type ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { redisInstalled, startRedis, type TestRedis } from '../../support/redis.ts';
import { createWorld, type World } from '../../support/world.ts';
import { type HeldTimers, holdTimers } from './held-timers.ts';

const anyPath = '/api/v1/EntityStatus'; // 403 without a tenant, which the rate limit precedes
const login = '/api/v1/auth/login';
const maxReplyMs = 80;
const patienceMs = 30_000;
const parallelClients = 10;
const installationId = 'an-installation';

if (!redisInstalled) {
  console.log('redis-server is not installed: the tests of rate limits in Redis are skipped');
} else {
  describe('rate limits in Redis', rateLimitsInRedis);
}

function rateLimitsInRedis(this: Mocha.Suite): void {
  this.slow(4_000);
  let world: World;
  let redis: TestRedis;
  /**
   * The time limits of calls to Redis. While these are held, a call ends only by a reply, an
   * error or the test.
   */
  let timeLimits: HeldTimers;
  const running: RunningServer[] = [];
  const stopAll = () => Promise.all(running.splice(0).map(service => service.stop()));

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
    timeLimits = holdTimers(maxReplyMs);
  });
  afterEach(async () => {
    timeLimits.restore();
    redis.signal('SIGCONT');
    await stopAll();
  });

  /** Starts another server of the service with this Redis. */
  const start = async (environment: Record<string, string> = {}) => {
    const settings = { REDIS_URL: redis.url, TRUSTED_PROXIES: '127.0.0.1', ...environment };
    const { service, url } = await world.startAnotherServer(settings);
    running.push(service);
    const client = new Client(url);
    return {
      get: (address: string) => client.get(anyPath, { 'X-Forwarded-For': address }),
      login: (address: string, email: string) =>
        client.post(login, { email }, { 'X-Forwarded-For': address }),
    };
  };
  const readId = async () =>
    (await readInstallationIdentity(await world.installation.control())).id;
  const events = () =>
    world.logs
      .map(line => JSON.parse(line).event)
      .filter(event => String(event).startsWith('rate_limits'));
  const logged = (event: string) => eventually(() => events().includes(event), patienceMs);

  it('all processes share one count, in keys that reveal no account and belong to one limit each', async () => {
    const settings = { RATE_LIMIT_LOGIN: '5/15m' };
    const [one, two] = await Promise.all([start(settings), start(settings)]);
    const email = 'spy\r\nFLUSHALL\r\n*{x}@acme.test';

    for (let i = 0; i < 5; i++) {
      expect((await (i % 2 ? one : two).login('192.0.2.1', email)).status).to.equal(403);
    }

    const sixth = await Promise.all([one.login('192.0.2.1', email), two.login('192.0.2.1', email)]);
    expect(statusCounts(sixth)).to.deep.equal({ 429: 2 });
    expect((await two.get('192.0.2.1')).headers.get('ratelimit-remaining')).to.equal('999992');

    for (const address of ['not an address', 'x'.repeat(4_000), ', ,', 'unknown', '_hidden', '*']) {
      expect((await one.get(address)).status).to.equal(403);
    }

    const id = await readId();
    const keys = (await redis.admin.keys('*:rl:[^p]*')).sort();
    expect((await redis.admin.keys('*')).filter(key => !key.startsWith(`${id}:rl:`))).to.deep.equal(
      [],
    );
    expect(keys).to.have.length(3);
    expect(keys[0]).to.equal(`${id}:rl:global:127.0.0.1`);
    expect(keys[1]).to.equal(`${id}:rl:global:192.0.2.1`);
    expect(keys[2]).to.match(/^[\w-]{36}:rl:login:[\w-]{32}$/);

    await stopAll();
    await eventually(async () => (await redis.connections()) === 0, patienceMs);
  });

  it('a process that starts without Redis counts by itself, and shares a count once Redis is up', async () => {
    await redis.kill();
    const one = await start({ RATE_LIMIT_GLOBAL: '20/60s' });
    expect(events()).to.deep.equal(['rate_limits_own']);
    const responses = await load(one.get, '192.0.2.2', 100);
    expect(statusCounts(responses)).to.deep.equal({ 403: 20, 429: 80 });

    await redis.start();
    await logged('rate_limits_shared');
    await one.get('192.0.2.3');
    expect(await redis.admin.exists(`${await readId()}:rl:global:192.0.2.3`)).to.equal(1);
    expect(events()).to.deep.equal(['rate_limits_own', 'rate_limits_shared']);
  });

  describe('Redis that does not reply', () => {
    it('while Redis does not reply, the first calls wait 80 ms, and later ones do not wait', async () => {
      const store = await createRateLimitStore({
        redisUrl: redis.url,
        installationId,
        log: world.log,
      });
      const hit = () => store.hit('rl:test', { max: 1_000, windowMs: 60_000 });

      redis.signal('SIGSTOP');
      for (let i = 0; i < 2; i++) {
        const hits = Promise.all([hit(), hit()]);
        // calls made together share one command
        await eventually(() => timeLimits.size === 1, patienceMs);
        timeLimits.release();
        await hits;
      }

      const { total } = timeLimits;
      // A promise that waits for nothing settles before the next turn of the event loop.
      for (let i = 0; i < 5; i++) {
        expect(await Promise.race([hit().then(() => 'counted'), setImmediate('waited')])).to.equal(
          'counted',
        );
      }
      expect(timeLimits.total).to.equal(total);

      redis.signal('SIGCONT');
      store.close();
    });

    it('while Redis is silent, only the first requests wait, and only until their time limit', async () => {
      const one = await start({ RATE_LIMIT_GLOBAL: '50/60s' });
      await load(one.get, '192.0.2.4', 50);

      redis.signal('SIGSTOP');
      const before = timeLimits.total;
      const startedAt = performance.now();
      const responses = await endingTimeLimits(load(one.get, '192.0.2.5', 200));

      // After the third call in a row without a reply, no request calls Redis any more; calls
      // that run then still end. Beside the requests, a probe calls it every half second, with
      // 16 keys.
      const probes = Math.floor((performance.now() - startedAt) / 500);
      expect(timeLimits.total - before).to.be.within(1, 3 + 2 * parallelClients + 16 * probes);
      expect(statusCounts(responses)).to.deep.equal({ 403: 50, 429: 150 });
      expect(events()[0]).to.equal('rate_limits_own');

      timeLimits.restore();
      redis.signal('SIGCONT');
      await logged('rate_limits_shared');
      expect(await redis.connections()).to.equal(1);
    });

    it('of simultaneous calls a process allows as many as Redis does, and without a reply as many as the rate', async () => {
      const rate = { max: 10, windowMs: 60_000 };
      const [one, other] = [
        await createRateLimitStore({ redisUrl: redis.url, installationId, log: world.log }),
        await createRateLimitStore({ redisUrl: redis.url, installationId, log: world.log }),
      ];
      const hitAtOnce = (store: typeof one, calls: number) =>
        Promise.all(Array.from({ length: calls }, () => store.hit('rl:test:shared', rate)));
      const allowed = (results: { remaining: number }[]): number =>
        results.filter(({ remaining }) => remaining > 0).length;
      await hitAtOnce(other, 8);

      const together = await hitAtOnce(one, 5);
      expect(allowed(together)).to.equal(2);

      redis.signal('SIGSTOP');
      const withoutReply = await endingTimeLimits(hitAtOnce(one, 12));
      expect(allowed(withoutReply)).to.equal(8);
      redis.signal('SIGCONT');
      one.close();
      other.close();
    });

    /**
     * Ends every call to Redis at its time limit, without waiting for the clock, until `work`
     * is done.
     */
    async function endingTimeLimits<T>(work: Promise<T>): Promise<T> {
      let done = false;
      const result = work.finally(() => {
        done = true;
      });
      while (!done) {
        timeLimits.release();
        await setImmediate();
      }
      return result;
    }
  });

  describe('Redis that refuses to count', () => {
    const refusals: [string, () => Promise<unknown>, () => Promise<unknown>][] = [
      [
        'OOM',
        () => redis.admin.config('SET', 'maxmemory', 1),
        () => redis.admin.config('SET', 'maxmemory', 0),
      ],
      [
        'READONLY',
        () => redis.admin.replicaof('127.0.0.1', 1),
        () => redis.admin.replicaof('NO', 'ONE'),
      ],
      [
        'NOAUTH',
        async () => {
          await redis.admin.config('SET', 'requirepass', 'secret');
          await redis.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        },
        () => redis.admin.config('SET', 'requirepass', ''),
      ],
    ];
    for (const [error, provoke, end] of refusals) {
      it(`while Redis replies ${error}, the process counts by itself and no request waits`, async () => {
        const one = await start({ RATE_LIMIT_GLOBAL: '20/60s' });
        await load(one.get, '192.0.2.6', 10);
        await provoke();

        try {
          // would not end if a request waited 80 ms
          const responses = await load(one.get, '192.0.2.6', 100);
          expect(statusCounts(responses)).to.deep.equal({ 403: 10, 429: 90 });
          await load(one.get, '192.0.2.7', 10);
        } finally {
          await end();
        }

        await logged('rate_limits_shared');
        expect([...new Set(events())]).to.deep.equal(['rate_limits_own', 'rate_limits_shared']);

        // A line for each reason: a connection that is cut first says so before the next one is
        // refused.
        const reasons = world.logs.map(line => JSON.parse(line).reason).filter(Boolean);
        expect(new Set(reasons).size, String(reasons)).to.equal(reasons.length);
      });
    }

    it('processes share no count before Redis can write again, even if it could write a moment ago', async () => {
      const probes = holdTimers(500);
      const store = await createRateLimitStore({
        redisUrl: redis.url,
        installationId,
        log: world.log,
      }); // sends the first probe

      try {
        await redis.admin.config('SET', 'maxmemory', 1);
        for (let i = 0; i < 3; i++) await store.hit('rl:test', { max: 1_000, windowMs: 60_000 });
        probes.release();
        await eventually(
          () => probes.size === 1 || events().includes('rate_limits_shared'),
          patienceMs,
        );
        expect(events()).to.deep.equal(['rate_limits_own']);

        await redis.admin.config('SET', 'maxmemory', 0);
        await eventually(() => {
          probes.release();
          return events().includes('rate_limits_shared');
        }, patienceMs);
      } finally {
        await redis.admin.config('SET', 'maxmemory', 0);
        store.close();
        probes.restore();
      }
    });

    it('while Redis replies LOADING or MISCONF, the process counts by itself and no request waits', async () => {
      for (const error of [
        'LOADING Redis is loading the dataset in memory',
        'MISCONF Errors writing to the disk',
      ]) {
        const fake = await replyingAlways(`-${error}\r\n`);
        const one = await start({ RATE_LIMIT_GLOBAL: '20/60s', REDIS_URL: fake.url });
        expect(statusCounts(await load(one.get, '192.0.2.8', 100))).to.deep.equal({
          403: 20,
          429: 80,
        });

        await stopAll();
        fake.close();
      }

      expect(events()).to.deep.equal(['rate_limits_own', 'rate_limits_own']);
      expect(world.logs.map(line => JSON.parse(line).reason).filter(Boolean)).to.deep.equal([
        'LOADING',
        'MISCONF',
      ]);
    });
  });

  describe('two processes and a Redis with a fault', () => {
    /** The requests of a client in a minute; without Redis, to each of the two processes. */
    const max = 30;
    const faults: [
      fault: string,
      provoke: (proxy: FaultProxy) => unknown,
      end: (proxy: FaultProxy) => unknown,
    ][] = [
      ['is frozen', () => redis.signal('SIGSTOP'), () => redis.signal('SIGCONT')],
      ['answers after a second', proxy => proxy.delay(500), proxy => proxy.heal(false)],
      [
        'is read-only, as a replica',
        () => redis.admin.replicaof('127.0.0.1', 1),
        () => redis.admin.replicaof('NO', 'ONE'),
      ],
      ['is killed', () => redis.kill(), () => redis.start()],
      ['is cut off', proxy => proxy.cut(), proxy => proxy.heal(true)],
    ];
    let proxy: FaultProxy;
    before(async () => {
      proxy = await startFaultProxy(Number(new URL(redis.url).port));
    });
    after(() => proxy.close());

    for (const [fault, provoke, end] of faults) {
      it(`while Redis ${fault}, each process allows its limit and no more, and every other response is 429`, async () => {
        timeLimits.restore(); // the real clock
        const settings = {
          RATE_LIMIT_GLOBAL: `${max}/1h`,
          REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
        };
        const [one, two] = await Promise.all([start(settings), start(settings)]);
        const both = async (address: string, requests: number): Promise<ApiResponse[]> =>
          (
            await Promise.all([load(one.get, address, requests), load(two.get, address, requests)])
          ).flat();
        let attempt = 0;
        await eventually(
          async () => statusCounts(await both(`198.51.100.${++attempt}`, max))[403] === max,
          patienceMs,
        );

        await provoke(proxy);
        const startedAt = performance.now();
        const during = statusCounts(await both('192.0.2.31', 2 * max));
        const ms = performance.now() - startedAt;
        await end(proxy);

        expect(Object.keys(during).sort()).to.deep.equal(['403', '429']);
        expect(during[403]).to.be.within(max, 2 * max);
        // One call in a row waits for its time limit, and after three of them none does; a busy
        // machine takes longer.
        expect(ms).to.be.below(10_000);
        // On a busy machine a call may miss its time limit; its process then counts it by itself.
        await eventually(
          async () => statusCounts(await both(`198.51.101.${++attempt}`, max))[403] === max,
          2 * patienceMs,
        );
      });
    }
  });

  describe('Redis that is killed and started again', () => {
    it('a kill and restart of Redis under load makes no request fail or wait, and exceeds no limit', async () => {
      const one = await start({ RATE_LIMIT_GLOBAL: '400/60s' });
      const responses: ApiResponse[] = [];
      const sendDuring = async (change: Promise<unknown>): Promise<void> => {
        const [sent] = await Promise.all([load(one.get, '192.0.2.10', 40), change]);
        responses.push(...sent);
      };

      for (let i = 0; i < 3; i++) {
        await sendDuring(redis.kill());
        await sendDuring(Promise.resolve()); // all of it while Redis is down
        await sendDuring(redis.start());
        await logged('rate_limits_shared');
      }

      responses.push(...(await load(one.get, '192.0.2.10', 240)));
      expect(statusCounts(responses)).to.deep.equal({ 403: 400, 429: 200 });
    });

    it('12 restarts leave one connection and a shared count', async () => {
      const warnings: Error[] = [];
      const collect = (warning: Error) => warnings.push(warning);
      process.on('warning', collect);
      const one = await start();

      // The calls are more than the 10 listeners of one kind of which Node warns.
      for (let i = 0; i < 12; i++) {
        await redis.kill();
        await one.get('192.0.2.11');
        await redis.start();
        await one.get('192.0.2.11');
      }

      await eventually(async () => {
        await one.get('192.0.2.12');
        return (await redis.admin.exists(`${await readId()}:rl:global:192.0.2.12`)) === 1;
      }, patienceMs);

      expect(await redis.connections()).to.equal(1);
      expect(warnings).to.deep.equal([]);

      process.off('warning', collect);
      await stopAll();
      await eventually(async () => (await redis.connections()) === 0, patienceMs);
    });
  });
}

/** Sends requests of one client, ten at a time. */
async function load(
  get: (address: string) => Promise<ApiResponse>,
  address: string,
  requests: number,
) {
  const responses: ApiResponse[] = [];
  let left = requests;
  const clients = Array.from({ length: parallelClients }, async () => {
    while (left-- > 0) responses.push(await get(address));
  });
  await Promise.all(clients);
  return responses;
}

/** Counts the responses with each status. */
function statusCounts(responses: ApiResponse[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of responses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** Starts a server that sends the same reply to every Redis command. */
async function replyingAlways(reply: string): Promise<{ url: string; close(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer(socket => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', data =>
      socket.write(reply.repeat(String(data).match(/^\*\d/gm)?.length ?? 1)),
    );
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
