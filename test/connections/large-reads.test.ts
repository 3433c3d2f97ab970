import { expect } from 'chai';
import { LargeReads } from '../../src/connections/large-reads.ts';
import { errorOf } from '../support/errors.ts';

describe('large reads', () => {
  const mebibyte = 1024 * 1024;

  /** Returns the largest number of the reads that ran at the same time. */
  async function concurrency(reads: LargeReads, statement: string, bytes: number): Promise<number> {
    let running = 0;
    let max = 0;
    const read = async () => {
      max = Math.max(max, ++running);
      await new Promise(setImmediate);
      running--;
      return { result: undefined, bytes };
    };
    await Promise.all(Array.from({ length: 5 }, () => reads.run(statement, read)));
    return max;
  }

  it('reads of a statement with a large response run one at a time, and reads of others concurrently', async () => {
    const reads = new LargeReads();
    expect(await concurrency(reads, 'list', mebibyte)).to.equal(5);
    expect(await concurrency(reads, 'list', mebibyte)).to.equal(1);
    expect(await concurrency(reads, 'record', 100)).to.equal(5);
  });

  it('a failed large read does not block the next one', async () => {
    const reads = new LargeReads();
    await reads.run('list', async () => ({ result: 1, bytes: mebibyte }));
    const failing = reads.run('list', async () => Promise.reject(new Error('lost')));
    const next = reads.run('list', async () => ({ result: 2, bytes: mebibyte }));
    expect((await errorOf(failing)).message).to.equal('lost');
    expect(await next).to.equal(2);
  });
});
