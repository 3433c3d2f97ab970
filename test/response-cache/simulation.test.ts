import { expect } from 'chai';
import { plant } from '../simulation/mutants.ts';
import { parts } from '../simulation/parts.ts';
import { testSimulatedPart } from '../support/simulated-part.ts';

describe('simulation of the caches', () => {
  testSimulatedPart('response-cache', {
    promise: 'no fault makes a process serve a response that is older than promised, or of another tenant',
    runs: 12,
    mutants: 0,
  });
  testSimulatedPart('sessions', {
    promise: 'no fault makes a process accept a token longer than promised',
    runs: 12,
    mutants: 0,
  });

  it('the source code has the place of each planted fault of the caches', async () => {
    for (const part of [parts['response-cache'], parts.sessions])
      for (const mutant of part.mutants) expect(await plant(mutant)).to.include(mutant.replacement);
  });
});
