import { expect } from 'chai';
import fc from 'fast-check';
import {
  afterAttempt,
  type EndpointState,
  maxFailingMs,
  retryDelaysMs,
} from '../../../src/sales/webhooks/endpoint-state.ts';

const fresh: EndpointState = { failures: 0, failingSince: null, nextAttemptAt: null };
const failure = { status: 500, error: 'unsuccessful response' as const, retryAfterMs: undefined };
const success = { status: 204, error: null, retryAfterMs: undefined };
const change = undefined;
const hour = 3_600_000;

describe('the state of an endpoint', () => {
  it('an endpoint that fails is tried again after the waits of Standard Webhooks, and disabled after 5 days', () => {
    let state = fresh;
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
      5_000,
      300_000,
      1_800_000,
      2 * hour,
      5 * hour,
      10 * hour,
      14 * hour,
      20 * hour,
      24 * hour,
    ]);
    expect(waits.slice(retryDelaysMs.length)).to.deep.equal([24 * hour, 24 * hour]);

    expect(now - startedAt)
      .to.be.at.least(maxFailingMs)
      .and.below(maxFailingMs + 24 * hour);
  });

  it('a success ends the failures, so that a later failure begins with the first wait', () => {
    const failed = afterAttempt(fresh, change, failure, { now: 0, random: 0 }).endpoint;
    const { endpoint, sent } = afterAttempt(failed, change, success, { now: 5_000, random: 0 });
    expect(endpoint).to.deep.equal(fresh);
    expect(sent).to.equal('done');
  });

  it('a message beside the feed is retried after the same waits and then given up, and leaves the endpoint as it is', () => {
    const waits = retryDelaysMs.map((_, failures) => {
      const { endpoint, sent } = afterAttempt(fresh, { failures }, failure, { now: 0, random: 0 });
      expect(endpoint).to.deep.equal(fresh);

      return sent;
    });

    expect(waits).to.deep.equal(
      retryDelaysMs.map((at, failures) => ({ at, failures: failures + 1 })),
    );
    const last = { failures: retryDelaysMs.length };
    expect(afterAttempt(fresh, last, failure, { now: 0, random: 0 })).to.deep.equal({
      endpoint: fresh,
      sent: 'done',
    });
    expect(afterAttempt(fresh, last, success, { now: 0, random: 0 })).to.deep.equal({
      endpoint: fresh,
      sent: 'done',
    });
  });

  it('Retry-After lengthens a wait up to a day, and status 410 disables without a loss', () => {
    const wait = (retryAfterMs: number) =>
      afterAttempt(fresh, change, { ...failure, retryAfterMs }, { now: 0, random: 0 }).endpoint
        .nextAttemptAt;
    expect([wait(1_000), wait(60_000), wait(1e12)]).to.deep.equal([5_000, 60_000, 24 * hour]);

    const gone = { ...failure, status: 410 };
    const stopped = afterAttempt(fresh, change, gone, { now: 7, random: 0 });
    expect(stopped.disable).to.equal('gone');
    expect(stopped.sent).to.equal('stay');
    const message = afterAttempt(fresh, { failures: 2 }, gone, { now: 7, random: 0 });
    expect(message.disable).to.equal('gone');
    expect(message.sent).to.deep.equal({ at: 7, failures: 2 });
  });

  it('whatever receivers do, an endpoint passes a change only after a success, and each wait is at most a tenth longer', () => {
    const outcomes = fc.array(fc.constantFrom(success, failure), { maxLength: 40 });

    fc.assert(
      fc.property(outcomes, fc.double({ min: 0, max: 1, noNaN: true }), (results, random) => {
        let state = fresh;
        let now = 0;

        for (const outcome of results) {
          const step = afterAttempt(state, change, outcome, { now, random });
          expect(step.sent).to.equal(outcome === success ? 'done' : 'stay');

          state = step.endpoint;
          if (outcome === success) {
            expect(state).to.deep.equal(fresh);
          } else {
            const delay = retryDelaysMs[state.failures - 1] ?? 24 * hour;
            expect(state.nextAttemptAt! - now).to.be.within(delay - 1, delay * 1.1 + 1);
          }
          now = state.nextAttemptAt ?? now + 1;
        }
      }),
    );
  });
});
