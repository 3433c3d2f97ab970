import { testSimulatedPart } from '../../support/simulated-part.ts';

describe('simulation of backups', () => {
  testSimulatedPart('backups', {
    promise: 'no killed run, crash or damage makes a change be missed by the newest archive',
    runs: 30,
    mutants: 1,
  });
});
