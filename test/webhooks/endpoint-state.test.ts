import { expect } from 'chai';
import fc from 'fast-check';
import { afterAttempt, type EndpointState, maxFailingMs, retryDelaysMs } from '../../src/webhooks/endpoint-state.ts';

const fresh = (ordering: 'strict' | 'none'): EndpointState => ({
  ...{ failures: 0, failingSince: null, nextAttemptAt: null, ordering },
});
const failure = { status: 500, error: 'status' as const, retryAfterMs: undefined };
const success = { status: 204, error: null, retryAfterMs: undefined };
const change = undefined;
const hour = 3_600_000;

describe('the state of an endpoint', () => {
  it('a strict endpoint that fails is tried again after the waits of Standard Webhooks, and disabled after 5 days', () => {
    let state = fresh('strict');
    let now = 1_000_000;
    const startedAt = now;
    const waits: number[] = [];
    for (;;) {
      const step = afterAttempt(state, change, failure, { now, random: 0 });
      expect(step.sent).to.equal('stay');
      state = step.endpoint;
      if (step.disable) break;
      waits.push(state.nextAttemptAt! - now);
      now = state.nextAttemptAt!;
    }
    expect(waits.slice(0, retryDelaysMs.length)).to.deep.equal([
      ...[5_000, 300_000, 1_800_000, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour],
    ]);
    expect(waits.slice(retryDelaysMs.length)).to.deep.equal([24 * hour, 24 * hour]);
    expect(now - startedAt)
      .to.be.at.least(maxFailingMs)
      .and.below(maxFailingMs + 24 * hour);
  });

  it('a success ends the failures, so that a later failure begins with the first wait', () => {
    const failed = afterAttempt(fresh('strict'), change, failure, { now: 0, random: 0 }).endpoint;
    const { endpoint, sent } = afterAttempt(failed, change, success, { now: 5_000, random: 0 });
    expect([endpoint, sent]).to.deep.equal([fresh('strict'), 'done']);
  });

  it('an endpoint without an order goes on, and its change is retried as a message until it is given up', () => {
    const { endpoint, sent } = afterAttempt(fresh('none'), change, failure, { now: 0, random: 0 });
    expect(endpoint.nextAttemptAt).to.equal(null);
    expect(sent).to.deep.equal({ at: 5_000, failures: 1 });
    const last = { failures: retryDelaysMs.length };
    expect(afterAttempt(endpoint, last, failure, { now: 0, random: 0 }).sent).to.deep.equal('done');
  });

  it('an endpoint without an order sends nothing more until the time of a Retry-After, whatever becomes of other messages', () => {
    const busy = { ...failure, retryAfterMs: 120_000 };
    const { endpoint, sent } = afterAttempt(fresh('none'), change, busy, { now: 1_000, random: 0 });
    expect([endpoint.nextAttemptAt, sent]).to.deep.equal([121_000, { at: 121_000, failures: 1 }]);
    for (const other of [success, failure, { ...failure, retryAfterMs: 1_000 }])
      expect(afterAttempt(endpoint, change, other, { now: 1_000, random: 0 }).endpoint.nextAttemptAt).to.equal(121_000);
  });

  it('the last attempt of a message does not change a strict endpoint', () => {
    const step = afterAttempt(fresh('strict'), { failures: retryDelaysMs.length }, failure, { now: 0, random: 0 });
    expect(step).to.deep.equal({ endpoint: fresh('strict'), sent: 'done' });
  });

  it('Retry-After lengthens a wait up to a day, and status 410 disables without a loss', () => {
    const wait = (retryAfterMs: number) =>
      afterAttempt(fresh('strict'), change, { ...failure, retryAfterMs }, { now: 0, random: 0 }).endpoint.nextAttemptAt;
    expect([wait(1_000), wait(60_000), wait(1e12)]).to.deep.equal([5_000, 60_000, 24 * hour]);
    const gone = { ...failure, status: 410 };
    const strict = afterAttempt(fresh('strict'), change, gone, { now: 7, random: 0 });
    expect([strict.disable, strict.sent]).to.deep.equal(['gone', 'stay']);
    const none = afterAttempt(fresh('none'), change, gone, { now: 7, random: 0 });
    expect([none.disable, none.sent]).to.deep.equal(['gone', { at: 7, failures: 0 }]);
  });

  it('whatever receivers do, a strict endpoint passes a change only after a success, and each wait is at most a tenth longer', () => {
    const outcomes = fc.array(fc.constantFrom(success, failure), { maxLength: 40 });
    fc.assert(
      fc.property(outcomes, fc.double({ min: 0, max: 1, noNaN: true }), (results, random) => {
        let state = fresh('strict');
        let now = 0;
        for (const outcome of results) {
          const step = afterAttempt(state, change, outcome, { now, random });
          expect(step.sent).to.equal(outcome === success ? 'done' : 'stay');
          state = step.endpoint;
          if (outcome === success) expect(state).to.deep.equal(fresh('strict'));
          else {
            const delay = retryDelaysMs[state.failures - 1] ?? 24 * hour;
            expect(state.nextAttemptAt! - now).to.be.within(delay - 1, delay * 1.1 + 1);
          }
          now = state.nextAttemptAt ?? now + 1;
        }
      }),
    );
  });
});
