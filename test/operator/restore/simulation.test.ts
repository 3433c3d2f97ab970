import { testSimulatedPart } from '../../support/simulated-part.ts';

describe('simulation of restores', () => {
  testSimulatedPart('restores', {
    promise:
      'no fault of a run, a process or the control database loses a write, opens two databases or drops one in use',
    runs: 100,
    mutants: 4,
  });
});
