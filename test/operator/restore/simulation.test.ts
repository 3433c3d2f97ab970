import { testSimulatedPart } from '../../support/simulated-part.ts';

describe('simulation of restores', () => {
  testSimulatedPart('restores', {
    promise:
      'no fault of a run, a process or the control database loses a write, opens two databases or drops one in use',
    runs: 100,
    mutants: 4,
  });
  testSimulatedPart('lost-restores', {
    promise: 'no fault of a run, a process or the control database mixes restored data, or loses a write since',
    runs: 100,
    mutants: 4,
  });
});
