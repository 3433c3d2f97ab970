import { parts } from '../simulation/parts.ts';
import { testSimulatedPart } from '../support/simulated-part.ts';

describe('simulation of the connection budget', () => {
  testSimulatedPart('budget', {
    promise: 'no fault of a process, the network or the control database breaks an invariant',
    runs: 500, // the drill runs twice as many
    mutants: parts.budget.mutants.length,
  });
});
