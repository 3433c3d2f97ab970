import { expect } from 'chai';
import { type CacheSubject, simulateCaches } from '../simulation/caches/cache-simulation.ts';
import { plant } from '../simulation/mutants.ts';
import { parts } from '../simulation/parts.ts';

const runs = 25;

describe('simulation of the caches', () => {
  const promises: [CacheSubject, string][] = [
    ['responses', 'no fault makes a process serve a response that is older than promised, or of another tenant'],
    ['sessions', 'no fault makes a process accept a token longer than promised'],
  ];
  for (const [subject, promise] of promises)
    it(`${promise}, in ${runs} simulated runs`, async () => {
      for (let seed = 1; seed <= runs; seed++) {
        try {
          await simulateCaches(subject, { seed });
        } catch (error) {
          throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
        }
      }
    });

  it('the source code has the place of each planted fault of the caches', async () => {
    for (const part of [parts['response-cache'], parts.sessions])
      for (const mutant of part.mutants) expect(await plant(mutant)).to.include(mutant.replacement);
  });

  it('the same seed gives the same simulated run of the caches, step by step', async () => {
    const run = async (subject: CacheSubject, seed: number): Promise<string> => {
      const trace: string[] = [];
      await simulateCaches(subject, { seed, trace });
      return trace.join('\n');
    };
    for (const subject of ['responses', 'sessions'] as const) {
      const first = await run(subject, 1);
      expect(await run(subject, 1)).to.equal(first);
      expect(await run(subject, 2)).not.to.equal(first);
      expect(first.length).to.be.greaterThan(5_000);
    }
  });
});
