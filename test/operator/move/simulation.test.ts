import { testSimulatedPart } from '../../support/simulated-part.ts';

describe('simulation of moves', () => {
  testSimulatedPart('moves', {
    promise: 'no fault of a run or of a process loses a write or opens two databases',
    runs: 30,
    mutants: 4,
  });
});
