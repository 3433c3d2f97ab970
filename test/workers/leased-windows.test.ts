import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import { createProcessWindows } from '../../src/http/rate-limit/process-windows.ts';
import type { SharedWindows } from '../../src/http/rate-limit/shared-windows.ts';
import type { Rate } from '../../src/http/rate-limit/sliding-window.ts';
import { LeasedWindows } from '../../src/workers/leased-windows.ts';
import { createWindowsInPrimary } from '../../src/workers/windows-in-primary.ts';

/** Workers and their primary process, whose messages take one or more turns of the event loop. */
interface Cluster {
  now: number;
  messages: number;
  readonly workers: (SharedWindows & { giveBack(key: string): number })[];
  /** Makes a worker not respond any more. */
  silence(worker: number): void;
  close(): void;
}

function createCluster(count: number): Cluster {
  const silent = new Set<number>();
  const cluster: Cluster = {
    now: 1e12,
    messages: 0,
    workers: [],
    silence: worker => void silent.add(worker),
    close: () => {
      for (const worker of cluster.workers) worker.close();
    },
  };
  const primary = new LeasedWindows({
    windows: createProcessWindows(() => cluster.now),
    workers: count,
    recall: async (worker, key) => {
      await turn();
      return silent.has(worker) ? 0 : (cluster.workers[worker]?.giveBack(key) ?? 0);
    },
  });
  for (let worker = 0; worker < count; worker++) {
    const windows = createWindowsInPrimary(
      ({ id, calls }) => {
        cluster.messages++;
        void turn().then(async () => {
          const results = await primary.countAll(worker, calls);
          setImmediate(() => windows.receive(id, results));
        });
      },
      () => cluster.now,
    );
    cluster.workers.push(windows);
  }
  return cluster;
}

const never = Promise.resolve(undefined);

describe('rate limits in the primary process', () => {
  const rates: Rate[] = [
    { max: 5, windowMs: 900_000 },
    { max: 30, windowMs: 3_600_000 },
    { max: 500, windowMs: 60_000 },
  ];

  for (const rate of rates) {
    it(`${rate.max} calls in ${rate.windowMs} ms are allowed over three workers, never more, and none is rejected early`, async () => {
      const cluster = createCluster(3);
      const random = generator(rate.max);
      const allowed: number[] = [];
      const since = (time: number): number => allowed.filter(at => at >= time).length;
      let rejections = 0;
      for (let step = 0; step < 700; step++) {
        cluster.now += random() < 0.02 ? random() * rate.windowMs * 1.2 : random() * 200;
        const burst = Array.from({ length: 1 + Math.floor(random() * 8) }, () => Math.floor(random() * 3));
        const results = await Promise.all(burst.map(worker => cluster.workers[worker]?.hit('key', rate)));
        for (const result of results) if (result && result.remaining > 0) allowed.push(cluster.now);
        expect(since(cluster.now - rate.windowMs + 1)).to.be.at.most(rate.max);
        if (results.every(result => result && result.remaining > 0)) continue;
        rejections++;
        // A call counts for a sixteenth of the window too long at most, and a rejection is remembered for a second.
        expect(since(cluster.now - rate.windowMs * (17 / 16) - 1_000)).to.be.at.least(rate.max);
      }
      expect(rejections).to.be.greaterThan(20);
      cluster.close();
    });
  }

  it('calls that one worker has leased and not made are left to the other one', async () => {
    for (const isStaggered of [false, true]) {
      const cluster = createCluster(2);
      const calls: Promise<{ remaining: number } | undefined>[] = [];
      for (let call = 0; call < 600; call++) {
        calls.push(cluster.workers[call < 200 ? 0 : 1]?.hit('key', { max: 500, windowMs: 60_000 }) ?? never);
        // Without a wait for the result, calls overtake the messages of earlier ones.
        if (isStaggered) await turn();
        else await calls.at(-1);
      }
      const allowed = (await Promise.all(calls)).filter(result => result && result.remaining > 0);
      expect(allowed).to.have.length(500);
      cluster.close();
    }
  });

  it('a worker that ends leaves its unused calls to the others', async () => {
    const cluster = createCluster(2);
    const rate = { max: 500, windowMs: 60_000 };
    for (let call = 0; call < 100; call++) await cluster.workers[0]?.hit('key', rate);
    cluster.workers[0]?.close();
    cluster.silence(0);
    for (let call = 0; call < 600; call++) {
      const result = await cluster.workers[1]?.hit('key', rate);
      expect(result && result.remaining > 0, `call ${call}`).to.equal(call < 400);
    }
    cluster.close();
  });

  it('a client that calls often needs few messages, and a client that calls once needs one', async () => {
    const cluster = createCluster(2);
    const rate = { max: 1_000_000, windowMs: 60_000 };
    for (let call = 0; call < 2_000; call++) {
      cluster.now += 2;
      await cluster.workers[call % 2]?.hit('often', rate);
    }
    expect(cluster.messages).to.be.lessThan(120);
    const before = cluster.messages;
    for (let client = 0; client < 50; client++) await cluster.workers[0]?.hit(`once ${client}`, rate);
    expect(cluster.messages - before).to.equal(50);
    cluster.close();
  });

  it('a client above its limit causes one message a second to each worker', async () => {
    const cluster = createCluster(2);
    const rate = { max: 5, windowMs: 900_000 };
    for (let call = 0; call < 10; call++) await cluster.workers[call % 2]?.hit('key', rate);
    const before = cluster.messages;
    for (let call = 0; call < 1_000; call++) {
      cluster.now += 5;
      const result = await cluster.workers[call % 2]?.hit('key', rate);
      expect(result?.remaining).to.equal(0);
    }
    expect(cluster.messages - before).to.be.within(8, 12);
    cluster.close();
  });

  it('the lease of a worker that does not respond counts as used, and holds up no other worker', async () => {
    const cluster = createCluster(2);
    const rate = { max: 100, windowMs: 60_000 };
    for (let call = 0; call < 20; call++) await cluster.workers[0]?.hit('key', rate);
    cluster.silence(0);
    let allowed = 20;
    for (let call = 0; call < 100; call++) {
      const result = await cluster.workers[1]?.hit('key', rate);
      if (result && result.remaining > 0) allowed++;
    }
    expect(allowed).to.be.within(80, 100);
    cluster.close();
  });
});

/** A generator of pseudo-random numbers from 0 to 1 (mulberry32). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
