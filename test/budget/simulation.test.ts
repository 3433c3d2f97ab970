import { testSimulatedPart } from '../support/simulated-part.ts';

describe('simulation of the connection budget', () => {
  testSimulatedPart('budget', {
    promise: 'no fault of a process, the network or the control database breaks an invariant',
    runs: 60, // the drill runs 1,000, and finds every planted fault
    mutants: 3,
  });
});
