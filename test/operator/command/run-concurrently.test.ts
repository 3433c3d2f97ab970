import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { runConcurrently } from '../../../src/operator/command/run-fleet.ts';

describe('concurrent tasks', () => {
  it('at most the given number of tasks runs at a time, and the results have the order of the items', async () => {
    let running = 0;
    let maxRunning = 0;
    const results = await runConcurrently([30, 5, 20, 1, 10], 2, async ms => {
      maxRunning = Math.max(maxRunning, ++running);
      await sleep(ms);
      running--;
      return ms * 2;
    });
    expect(results).to.deep.equal([60, 10, 40, 2, 20]);
    expect(maxRunning).to.equal(2);
  });

  it('after an error no further task begins, and the error is thrown when the running tasks have ended', async () => {
    const begun: number[] = [];
    const ended: number[] = [];
    const failed = new Error('the second task failed');
    const error = await runConcurrently([1, 2, 3, 4], 2, async item => {
      begun.push(item);
      if (item === 2) throw failed;
      await sleep(20);
      ended.push(item);
    }).catch(thrown => thrown);
    expect(error).to.equal(failed);
    expect([begun, ended]).to.deep.equal([[1, 2], [1]]);
  });
});
