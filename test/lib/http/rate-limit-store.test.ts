import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'chai';
import { pino } from 'pino';
import { failuresPrefix } from '../../../src/lib/http/steps/rate-limit/process-windows.ts';
import { createRateLimitStore } from '../../../src/lib/http/steps/rate-limit/rate-limit-store.ts';
import { RedisWindows } from '../../../src/lib/http/steps/rate-limit/redis-windows.ts';
import type { SharedWindows } from '../../../src/lib/http/steps/rate-limit/shared-windows.ts';
import {
  groupSpan,
  type Rate,
  SlidingWindows,
} from '../../../src/lib/http/steps/rate-limit/sliding-window.ts';
import type { Random } from '../../simulation/random.ts';
import { eventually } from '../../support/eventually.ts';
import { useRandom } from '../../support/random.ts';
import { redisInstalled, startRedis, type TestRedis } from '../../support/redis.ts';
import { type HeldTimers, holdTimers } from './held-timers.ts';

const installationId = '0d9f4c0e-5d3b-4f0a-9a53-1f6c9a2f8b11';
const rates: Rate[] = [
  { max: 1, windowMs: 60_000 },
  { max: 5, windowMs: 900_000 },
  { max: 20, windowMs: 60_000 },
  { max: 21, windowMs: 60_000 },
  { max: 500, windowMs: 60_000 },
];

/**
 * Generates the times of a client's calls in milliseconds: first four bursts that exceed the
 * limit, each in a window of its own, and then bursts, slow series and pauses in random order.
 */
function* callTimes(random: Random, { max, windowMs }: Rate, calls: number): Generator<number> {
  const paces = [0, 0.01, windowMs / max / 3, windowMs / max, windowMs / 19];
  let now = 1_700_000_000_000;
  for (let bursts = 0; calls > 0; bursts++) {
    const exceeds = bursts < 4;
    const pace = exceeds ? 0 : (random.pick(paces) ?? 0);
    const burst = exceeds ? Math.ceil(max * 1.2) : Math.ceil(random.next() * max * 1.2);
    for (let call = 0; call < burst && calls > 0; call++, calls--) {
      now += random.next() * 2 * pace;
      yield Math.floor(now);
    }
    const pause = exceeds ? 1 : random.chance(0.5) ? 0 : random.next();
    now += pause * windowMs * 1.2;
  }
}

/**
 * Returns the bytes of the heap that are in use after a garbage collection, whatever other
 * tests have left.
 */
function reachableHeap(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}

describe('sliding windows', () => {
  const random = useRandom();

  for (const rate of rates) {
    it(`a window of ${rate.max} in ${rate.windowMs} ms is exact to one group span and never exceeded`, () => {
      const windows = new SlidingWindows(10);
      const allowed: number[] = [];
      const since = (time: number): number => allowed.length - lowerBound(allowed, time);

      for (const now of callTimes(random, rate, 5_000)) {
        const { remaining, resetMs } = windows.hit('key', rate, now);
        if (remaining > 0) allowed.push(now);
        else expect(since(now - rate.windowMs - groupSpan(rate))).to.be.at.least(rate.max);
        expect(since(now - rate.windowMs + 1)).to.be.at.most(rate.max);
        expect(resetMs).to.be.within(1, rate.windowMs);
      }
      expect(allowed.length).to.be.greaterThan(rate.max * 3);
    });
  }

  it('a steady client may use 95 % of its limit', () => {
    const rate = { max: 500, windowMs: 60_000 };
    const windows = new SlidingWindows(1);
    for (let i = 0; i < 5_000; i++) {
      expect(
        windows.hit('key', rate, 1e12 + i * Math.ceil(60_000 / 475)).remaining,
      ).to.be.greaterThan(0);
    }
  });

  it('windows are stored for at most as many clients as the limit, in less than 1.2 KiB each', () => {
    const max = 5_000;
    const windows = new SlidingWindows(max);
    const before = reachableHeap();
    for (let i = 0; i < 1.5 * max; i++) {
      windows.hit(`rl:global:client-${i}`, { max: 500, windowMs: 60_000 }, 1e12 + i);
    }
    const grown = reachableHeap() - before;
    expect(windows.size).to.equal(max);
    expect(grown).to.be.lessThan(max * 1.2 * 1024);
  });
});

describe('rate limit store without Redis', () => {
  it('no number of requests makes the store forget the failed logins to an account', async () => {
    const store = await createRateLimitStore({
      redisUrl: undefined,
      installationId,
      log: pino({ level: 'silent' }),
    });

    const failures = { max: 2, windowMs: 86_400_000 };
    const account = `${failuresPrefix}account`;

    for (let failed = 0; failed < 2; failed++) await store.hit(account, failures);
    for (let i = 0; i < 100_001; i++) {
      await store.hit(`rl:login:${i}`, { max: 5, windowMs: 900_000 });
    }

    expect((await store.peek(account, failures)).remaining).to.equal(0);
    store.close();
  });
});

if (!redisInstalled) {
  console.log('redis-server is not installed: the tests of windows in Redis are skipped');
} else {
  describe('sliding windows in Redis', slidingWindowsInRedis);
}

function slidingWindowsInRedis(): void {
  const random = useRandom();
  let redis: TestRedis;
  let store: SharedWindows;
  let timeLimits: HeldTimers;
  let now = 0;
  before(async () => {
    redis = await startRedis();
    store = new RedisWindows({ url: redis.url, installationId, now: () => now });
    await store.started();
    timeLimits = holdTimers(80); // so that a busy machine ends no call
  });
  after(async () => {
    timeLimits?.restore();
    store?.close();
    await redis?.close();
  });

  for (const rate of rates) {
    it(`a window of ${rate.max} in ${rate.windowMs} ms in Redis counts as one in memory does`, async () => {
      const inMemory = new SlidingWindows(10);
      const key = `rl:test:${rate.max}`;
      for (now of callTimes(random, rate, 400)) {
        expect(await store.hit(key, rate), String(now)).to.deep.equal(inMemory.hit(key, rate, now));
      }
    });

    it(`calls of a window of ${rate.max} in ${rate.windowMs} ms that are counted together in Redis count as one by one`, async () => {
      const inMemory = new SlidingWindows(10);
      const key = `rl:together:${rate.max}`;
      let turn = 0;

      for (now of callTimes(random, rate, 200)) {
        const calls = Array.from({ length: 1 + (turn++ % 4) });
        const together = await Promise.all(calls.map(() => store.hit(key, rate)));
        const single = calls.map(() => inMemory.hit(key, rate, now));

        const remaining = together.map(result => result.remaining);
        expect(remaining).to.deep.equal(single.map(result => result.remaining));
        expect(await store.peek(key, rate)).to.deep.equal(inMemory.peek(key, rate, now));
      }
    });

    it(`a peek at a window of ${rate.max} in ${rate.windowMs} ms counts nothing, in Redis and in memory`, async () => {
      const inMemory = new SlidingWindows(10);
      const key = `rl:peek:${rate.max}`;
      for (now of callTimes(random, rate, 200)) {
        const expected = inMemory.peek(key, rate, now);
        expect(await store.peek(key, rate), String(now)).to.deep.equal(expected);
        expect(inMemory.hit(key, rate, now).remaining).to.equal(expected.remaining);
        expect((await store.hit(key, rate)).remaining).to.equal(expected.remaining);
      }
    });
  }

  for (const rate of [rates[1], rates[4]] as [Rate, Rate]) {
    it(`a window of ${rate.max} in Redis ends in its own time when the clock of Redis was set back`, async () => {
      const key = `rl:set-back:${rate.max}`;
      now = 1_800_000_000_000;
      for (let call = 0; call < rate.max; call++) await store.hit(key, rate);

      now -= 10 * rate.windowMs;
      expect(await store.hit(key, rate)).to.deep.equal({ remaining: 0, resetMs: rate.windowMs });
      now += rate.windowMs - 1;
      expect((await store.hit(key, rate)).remaining).to.equal(0);
      now += 1;
      expect((await store.hit(key, rate)).remaining).to.equal(rate.max);
    });
  }

  it('a window in Redis counts by the clock of Redis, in one small key that expires with it', async () => {
    const large = { max: 500, windowMs: 60_000 };
    for (let call = 0; call < large.max; call++) await store.hit('rl:large', large);
    expect(await redis.admin.memory('USAGE', `${installationId}:rl:large`)).to.be.lessThan(700);

    const byItsClock = new RedisWindows({ url: redis.url, installationId });
    await byItsClock.started();
    const rate = { max: 3, windowMs: 60_000 };
    const results = await Promise.all(
      Array.from({ length: 50 }, () => byItsClock.hit('rl:test:minute', rate)),
    );
    expect(results.filter(({ remaining }) => remaining > 0)).to.have.length(3);
    expect(await redis.admin.pttl(`${installationId}:rl:test:minute`)).to.be.within(1, 60_000);

    const short = { max: 3, windowMs: 300 };
    await byItsClock.hit('rl:test:short', short);
    await eventually(
      async () => (await redis.admin.exists(`${installationId}:rl:test:short`)) === 0,
    );
    expect((await byItsClock.hit('rl:test:short', short)).remaining).to.equal(3);
    byItsClock.close();
  });
}

function lowerBound(sorted: number[], value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
