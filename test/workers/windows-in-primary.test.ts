import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import { pino } from 'pino';
import { createProcessWindows } from '../../src/http/rate-limit/process-windows.ts';
import { createRateLimitStore, type RateLimitStore } from '../../src/http/rate-limit/rate-limit-store.ts';
import type { ToPrimary } from '../../src/workers/messages.ts';
import { countCalls, createWindowsInPrimary } from '../../src/workers/windows-in-primary.ts';
import { type HeldTimers, holdTimers } from '../http/held-timers.ts';
import { eventually } from '../support/eventually.ts';

const maxReplyMs = 80;
const rate = { max: 10, windowMs: 60_000 };

describe('windows in the primary process', () => {
  const messages: Extract<ToPrimary, { type: 'count' }>[] = [];
  const windows = createProcessWindows(() => 1e12);
  const inPrimary = createWindowsInPrimary(message => void messages.push(message));
  let timeLimits: HeldTimers;
  beforeEach(() => {
    messages.length = 0;
    timeLimits = holdTimers(maxReplyMs);
  });
  afterEach(() => timeLimits.restore());

  /** The primary process counts all messages that have arrived, and replies. */
  function reply(): void {
    for (const { id, calls } of messages.splice(0)) inPrimary.receive(id, countCalls(windows, calls));
  }

  it('a worker sends all calls of one turn of its event loop in one message, a count for each client', async () => {
    const hits = ['one', 'two', 'one', 'one'].map(key => inPrimary.hit(key, rate));
    const peeks = ['one', 'three'].map(key => inPrimary.peek(key, rate));
    await turn();
    expect(messages.map(({ calls }) => calls)).to.deep.equal([
      [
        ['one', 10, 60_000, 3],
        ['two', 10, 60_000, 1],
        ['three', 10, 60_000, 0],
      ],
    ]);
    reply();
    const results = await Promise.all([...hits, ...peeks]);
    expect(results.map(({ remaining }) => remaining)).to.deep.equal([10, 10, 9, 8, 7, 10]);
    expect(['one', 'two', 'three'].map(key => windows.peek(key, rate).remaining)).to.deep.equal([7, 9, 10]);
  });

  it('a primary process without a reply is given up after 80 ms, then probed, and used again when it replies', async () => {
    const probes = holdTimers(500);
    const created = createRateLimitStore({ redisUrl: undefined, primary: inPrimary, log: pino({ level: 'silent' }) });
    await eventually(() => messages.length === 1); // the probe at the start
    reply();
    const store: RateLimitStore = await created;
    for (let call = 0; call < 3; call++) {
      const hit = store.hit('silent', rate);
      await eventually(() => timeLimits.size === 1);
      timeLimits.release();
      expect((await hit).remaining).to.equal(10 - call);
    }
    const { total } = timeLimits;
    expect(await Promise.race([store.hit('silent', rate).then(() => 'counted'), turn('waited')])).to.equal('counted');
    expect([timeLimits.total, store.isFallback]).to.deep.equal([total, true]);

    probes.release();
    await eventually(() => messages.length === 4);
    reply(); // to the late calls, too
    await eventually(() => !store.isFallback);
    const hit = store.hit('silent', rate);
    await eventually(() => messages.length === 1);
    reply();
    expect((await hit).remaining).to.equal(6);
    probes.restore();
    store.close();
  });

  it('of simultaneous calls a worker allows as many as the primary process allows, and without a reply as many as the rate', async () => {
    const created = createRateLimitStore({ redisUrl: undefined, primary: inPrimary, log: pino({ level: 'silent' }) });
    await eventually(() => messages.length === 1); // the probe at the start
    reply();
    const store = await created;
    /** @returns how many of the calls are allowed */
    const hitAtOnce = async (calls: number, answer: () => void): Promise<number> => {
      const hits = Array.from({ length: calls }, () => store.hit('shared', rate));
      await eventually(() => timeLimits.size === 1);
      answer();
      return (await Promise.all(hits)).filter(({ remaining }) => remaining > 0).length;
    };
    windows.hit('shared', rate, 8); // by other workers
    expect(await hitAtOnce(5, reply)).to.equal(2);
    expect(await hitAtOnce(12, () => timeLimits.release())).to.equal(8);
    store.close();
  });
});
