import { expect } from 'chai';
import { repeatRefused } from '../../bench/repeat-refused.ts';

/** Sends the answers one after another, the last one for ever. Returns the last answer, and the waits before it. */
async function sendAll(...answers: [status: number, retryAfter?: string][]): Promise<[number, number[]]> {
  const waits: number[] = [];
  const send = async () => {
    const [status, retryAfter] = answers[Math.min(waits.length, answers.length - 1)] ?? [0];
    return { status, headers: { 'retry-after': retryAfter } };
  };
  const { status } = await repeatRefused(send, async ms => waits.push(ms));
  return [status, waits];
}

describe('requests that prepare the bench', () => {
  it('a request that is refused with Retry-After is sent again after that time', async () => {
    expect(await sendAll([503, '1'], [429, '2'], [200])).to.deep.equal([200, [1_000, 2_000]]);
  });

  it('a refusal without Retry-After, and any other error, is not repeated', async () => {
    for (const status of [429, 503]) expect(await sendAll([status], [200])).to.deep.equal([status, []]);
    expect(await sendAll([500, '1'], [200])).to.deep.equal([500, []]);
  });

  it('a request that stays refused is given up after two minutes of waits, at once if the wait would be longer', async () => {
    const [status, waits] = await sendAll([503, '0'], [503, '50']);
    expect([status, waits]).to.deep.equal([503, [100, 50_000, 50_000]]);
    expect(await sendAll([429, '900'])).to.deep.equal([429, []]);
  });
});
