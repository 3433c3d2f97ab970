import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { pino } from 'pino';
import { createRateLimitStore } from '../../../src/lib/http/steps/rate-limit/rate-limit-store.ts';
import type { Rate } from '../../../src/lib/http/steps/rate-limit/sliding-window.ts';
import type { RunningServer } from '../../../src/service/server.ts';
import { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { useRandom } from '../../support/random.ts';
import { redisInstalled, startRedis, type TestRedis } from '../../support/redis.ts';
import { createWorld, type World } from '../../support/world.ts';
import { type HeldTimers, holdTimers } from './held-timers.ts';

const anyPath = '/api/v1/EntityStatus'; // 403 without a tenant, which the rate limit precedes
const maxReplyMs = 80;
/** The share of a limit that one process may hold back by leases. */
const heldBack = 2.5 / 64;

if (!redisInstalled) {
  console.log('redis-server is not installed: the tests of calls counted ahead are skipped');
} else {
  describe('calls counted ahead in Redis', callsCountedAhead);
}

function callsCountedAhead(this: Mocha.Suite): void {
  this.slow(10_000);
  const random = useRandom();
  let redis: TestRedis;
  let timeLimits: HeldTimers;
  before(async () => {
    redis = await startRedis();
  });
  after(() => redis?.close());
  beforeEach(async () => {
    if (redis.admin.status !== 'ready') await redis.start();
    await redis.admin.flushall();
    await redis.admin.config('RESETSTAT');
    timeLimits = holdTimers(maxReplyMs); // so that a busy machine ends no call
  });
  afterEach(() => timeLimits.restore());

  /** Returns the number of counts that Redis has made for the service. */
  const countsInRedis = async (): Promise<number> =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.admin.info('commandstats'))?.[1] ?? 0);

  let now = 0;
  const startStore = () =>
    createRateLimitStore({
      redisUrl: redis.url,
      installationId: 'an-installation',
      log: pino({ level: 'silent' }),
      now: () => now,
    });

  for (const rate of [
    { max: 1_280, windowMs: 60_000 },
    { max: 9_000, windowMs: 60_000 },
  ] satisfies Rate[]) {
    it(`two processes never allow more than ${rate.max} calls in a window, and refuse none before that but for what they hold back`, async function () {
      this.timeout(60_000);
      now = 1_700_000_000_000;
      const stores = [await startStore(), await startStore()];
      const allowed: number[] = [];
      const since = (time: number): number => allowed.filter(at => at > time).length;
      const periodMs = rate.windowMs / 40;
      let calls = 0;
      let rejected = 0;

      for (let step = 0; step < 800; step++) {
        const store = random.pick(stores) ?? expect.fail();
        const burst = random.integer(1, rate.max / 32);
        const results = await Promise.all(
          Array.from({ length: burst }, () => store.hitAhead('rl:test', rate)),
        );

        calls += burst;
        for (const { remaining } of results) {
          if (remaining > 0) allowed.push(now);
          else rejected++;
        }
        expect(since(now - rate.windowMs)).to.be.at.most(rate.max);
        if (results.some(({ remaining }) => remaining === 0)) {
          // as long as Redis may count a call: the window, a period, and a group of calls
          const countedMs = (rate.windowMs + periodMs) * (1 + 1 / 20);
          expect(since(now - countedMs)).to.be.at.least(rate.max * (1 - 2 * heldBack));
        }

        await setImmediate(); // a lease is asked for meanwhile
        now += Math.floor(random.next() * (random.pick([0, 0.2, 0.9, 1.2, 4]) ?? 0) * periodMs);
      }

      expect(rejected).to.be.greaterThan(rate.max / 10);
      expect(allowed.length).to.be.greaterThan(3 * rate.max);
      expect(await countsInRedis()).to.be.lessThan(calls);
      for (const store of stores) store.close();
    });
  }

  it('a call that was counted ahead counts for a whole window after it was made', async () => {
    const rate = { max: 1_280, windowMs: 60_000 };
    const periodMs = rate.windowMs / 40;
    now = 1_700_000_000_000;
    const [one, two] = [await startStore(), await startStore()];
    const hit = async (store: typeof one, calls: number): Promise<number> => {
      const results = await Promise.all(
        Array.from({ length: calls }, () => store.hitAhead('rl:test', rate)),
      );
      return results.filter(({ remaining }) => remaining > 0).length;
    };
    await redis.admin.config('RESETSTAT'); // the processes have counted probes
    await hit(one, 40);
    await eventually(async () => (await countsInRedis()) === 2); // the calls, and the lease

    now += 0.9 * periodMs;
    const late = await hit(one, 9);
    expect(await countsInRedis(), 'the lease was not used').to.equal(2);
    now += rate.windowMs - 1;
    const others = await hit(two, 2 * rate.max);

    expect(late).to.equal(9);
    expect(late + others).to.be.at.most(rate.max);
    one.close();
    two.close();
  });

  it('a steady client loses no call: with one process it may use 90 % of its limit', async () => {
    const rate = { max: 6_000, windowMs: 60_000 };
    now = 1_700_000_000_000;
    const store = await startStore();

    for (let call = 0; call < 3 * rate.max; call++) {
      expect((await store.hitAhead('rl:test', rate)).remaining, String(call)).to.be.greaterThan(0);
      if (call % 8 === 0) await setImmediate();
      now += Math.ceil(rate.windowMs / (0.9 * rate.max));
    }

    expect(await countsInRedis()).to.be.lessThan(rate.max);
    store.close();
  });

  describe('over HTTP, with two processes', () => {
    let world: World;
    const running: RunningServer[] = [];
    before(async () => {
      world = await createWorld();
    });
    after(() => world?.close());
    afterEach(() => Promise.all(running.splice(0).map(service => service.stop())));

    /** Starts another server of the service with this Redis. */
    const start = async (limit: string) => {
      const settings = {
        REDIS_URL: redis.url,
        TRUSTED_PROXIES: '127.0.0.1',
        RATE_LIMIT_GLOBAL: limit,
      };
      const { service, url } = await world.startAnotherServer(settings);
      running.push(service);
      const client = new Client(url);
      return async (address: string) =>
        (await client.get(anyPath, { 'X-Forwarded-For': address })).status;
    };

    type Get = Awaited<ReturnType<typeof start>>;

    /** Sends requests of one client, ten at a time, and counts the responses with 403. */
    const countAllowed = async (get: Get, address: string, requests: number): Promise<number> => {
      let allowed = 0;
      let left = requests;
      const sendAll = async (): Promise<void> => {
        while (left-- > 0) {
          const status = await get(address);
          expect(status).to.be.oneOf([403, 429]);
          if (status === 403) allowed++;
        }
      };

      await Promise.all(Array.from({ length: 10 }, sendAll));
      return allowed;
    };

    it("at the contract's limit of 500, exactly 500 requests pass, also of an IPv6 network", async () => {
      const [one, two] = await Promise.all([start('500/1h'), start('500/1h')]);

      for (const address of ['192.0.2.1', '2001:db8::1']) {
        const allowed = await Promise.all([
          countAllowed(one, address, 400),
          countAllowed(two, address, 400),
        ]);
        expect(allowed[0] + allowed[1]).to.equal(500);
      }

      // The networks of IPv6 that are larger have limits above those that allow leases.
      const networks = await redis.admin.keys('*:rl:global:2001:*');
      expect(networks).to.have.length(3);
      for (const text of await redis.admin.mget(networks)) expect(text).to.match(/ 500$/);
    });

    it('a limit of 2,000 is never exceeded, and no client is refused before it but for what is held back', async () => {
      const limit = 2_000;
      const [one, two] = await Promise.all([start(`${limit}/1h`), start(`${limit}/1h`)]);
      const allowed = await Promise.all([
        countAllowed(one, '192.0.2.2', 1_300),
        countAllowed(two, '192.0.2.2', 1_300),
      ]);

      const sum = allowed[0] + allowed[1];
      expect(sum).to.be.within(Math.floor(limit * (1 - 2 * heldBack)), limit);
      expect(await countsInRedis()).to.be.lessThan(limit / 2);
      expect(await one('192.0.2.2')).to.equal(429);
      expect(await two('192.0.2.2')).to.equal(429);
    });

    it('while Redis is away, each process allows its limit and no more', async () => {
      const [one, two] = await Promise.all([start('1280/1h'), start('1280/1h')]);
      const before = [
        await countAllowed(one, '192.0.2.3', 300),
        await countAllowed(two, '192.0.2.3', 200),
      ];
      expect(before).to.deep.equal([300, 200]);

      await redis.kill();
      const during = await Promise.all([
        countAllowed(one, '192.0.2.3', 1_400),
        countAllowed(two, '192.0.2.3', 1_400),
      ]);
      expect(during).to.deep.equal([980, 1_080]);
    });
  });
}
