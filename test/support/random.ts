import { randomInt } from 'node:crypto';
import { Random } from '../simulation/random.ts';
import { laterObject } from './use.ts';

/**
 * Returns the random numbers of each test of a `describe`. A test that fails prints their seed,
 * and a run with `TEST_SEED=<seed>` draws the same ones.
 */
export function useRandom(): Random {
  let seed: number;
  let random: Random;
  beforeEach(() => {
    seed = Number(process.env.TEST_SEED ?? randomInt(2 ** 32));
    random = new Random(seed);
  });
  afterEach(function () {
    if (this.currentTest?.state === 'failed') console.log(`      TEST_SEED=${seed}`);
  });
  return laterObject(() => random);
}
