import { expect } from 'chai';
import { createRedisStore, type RedisStore } from '../../src/http/rate-limit/redis-store.ts';
import { groupSpan, type Rate, SlidingWindows } from '../../src/http/rate-limit/sliding-window.ts';
import { redisInstalled, startRedis, type TestRedis } from '../support/redis.ts';

const rates: Rate[] = [
  { max: 1, windowMs: 60_000 },
  { max: 5, windowMs: 900_000 },
  { max: 20, windowMs: 60_000 },
  { max: 21, windowMs: 60_000 },
  { max: 500, windowMs: 60_000 },
];

/** A client that now bursts, now trickles, now waits: the times of its calls, in milliseconds. */
function* client({ max, windowMs }: Rate, calls: number): Generator<number> {
  let now = 1_700_000_000_000;
  while (calls > 0) {
    const pace = [0, 0.01, windowMs / max / 3, windowMs / max, windowMs / 19][Math.floor(Math.random() * 5)]!;
    for (let burst = Math.ceil(Math.random() * max * 1.2); burst > 0 && calls > 0; burst--, calls--) {
      now += Math.random() * 2 * pace;
      yield Math.floor(now);
    }
    now += Math.random() < 0.5 ? 0 : Math.random() * windowMs * 1.2;
  }
}

describe('a sliding window', () => {
  for (const rate of rates) {
    it(`of ${rate.max} in ${rate.windowMs} ms never lets in more, and refuses nobody longer than its groups are wide`, () => {
      const windows = new SlidingWindows(10);
      const allowed: number[] = [];
      const since = (time: number): number => allowed.length - lowerBound(allowed, time);
      for (const now of client(rate, 20_000)) {
        const { remaining, resetMs } = windows.hit('key', rate, now);
        if (remaining > 0) allowed.push(now);
        else expect(since(now - rate.windowMs - groupSpan(rate))).to.be.at.least(rate.max);
        expect(since(now - rate.windowMs + 1)).to.be.at.most(rate.max);
        expect(resetMs).to.be.within(1, rate.windowMs);
      }
      expect(allowed.length).to.be.greaterThan(rate.max * 3);
    });
  }

  it('lets a steady client have 95 % of its limit', () => {
    const rate = { max: 500, windowMs: 60_000 };
    const windows = new SlidingWindows(1);
    for (let i = 0; i < 5_000; i++) {
      expect(windows.hit('key', rate, 1e12 + i * Math.ceil(60_000 / 475)).remaining).to.be.greaterThan(0);
    }
  });

  it('forgets a call that is taken back, and not the others', () => {
    const rate = { max: 5, windowMs: 1_000 };
    const windows = new SlidingWindows(10);
    for (const at of [0, 10, 20]) windows.hit('key', rate, at);
    windows.undo('key', 10);
    expect(windows.hit('key', rate, 30).remaining).to.equal(3);
    expect(windows.hit('key', rate, 1_000).remaining).to.equal(3);
    for (const at of [20, 30, 1_000]) windows.undo('key', at);
    expect(windows.size).to.equal(0);
  });

  it('never grows by calls that are taken back', () => {
    const rate = { max: 500, windowMs: 60_000 };
    const windows = new SlidingWindows(10);
    windows.hit('key', rate, 0);
    for (let at = 1; at < 60_000; at += 100) {
      windows.hit('key', rate, at);
      windows.undo('key', at);
    }
    expect(windows.hit('key', rate, 59_999 + groupSpan(rate)).remaining).to.equal(500);
  });

  it('is kept for 100,000 clients and no more, in little memory', () => {
    const windows = new SlidingWindows(100_000);
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < 300_000; i++) windows.hit(`rl:global:client-${i}`, { max: 500, windowMs: 60_000 }, 1e12 + i);
    const grown = process.memoryUsage().heapUsed - before;
    expect(windows.size).to.equal(100_000);
    expect(grown).to.be.lessThan(120 * 1024 * 1024);
  });

  if (!redisInstalled) console.log('no redis-server: the tests of limits in Redis are left out');
  else describe('in Redis', inRedis);
});

function inRedis(): void {
  let redis: TestRedis;
  let windows: RedisStore;
  let now = 0;
  before(async () => {
    redis = await startRedis();
    windows = createRedisStore(redis.url, () => now);
    await windows.started();
  });
  after(async () => {
    windows?.close();
    await redis?.close();
  });

  for (const rate of rates) {
    it(`of ${rate.max} in ${rate.windowMs} ms counts as it does in memory`, async () => {
      const own = new SlidingWindows(10);
      const key = `rl:test:${rate.max}`;
      const calls = client(rate, 2_000);
      for (now of calls) {
        expect(await windows.hit(key, rate), String(now)).to.deep.equal(own.hit(key, rate, now));
      }
    });
  }

  it('counts by the clock of Redis, in one small key that is gone with its window', async () => {
    const byRedis = createRedisStore(redis.url);
    await byRedis.started();
    const rate = { max: 3, windowMs: 300 };
    const verdicts = await Promise.all(Array.from({ length: 50 }, () => byRedis.hit('rl:test:short', rate)));
    expect(verdicts.filter(verdict => verdict.remaining > 0)).to.have.length(3);
    expect(await redis.admin.pttl('rl:test:short')).to.be.within(1, 300);
    await new Promise(resolve => setTimeout(resolve, 310));
    expect(await redis.admin.exists('rl:test:short')).to.equal(0);
    expect((await byRedis.hit('rl:test:short', rate)).remaining).to.equal(3);
    byRedis.close();

    expect(await redis.admin.memory('USAGE', 'rl:test:500')).to.be.lessThan(700);
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
