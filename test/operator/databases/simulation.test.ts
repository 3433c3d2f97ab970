import { testSimulatedPart } from '../../support/simulated-part.ts';

describe('simulation of databases', () => {
  testSimulatedPart('databases', {
    promise:
      'no fault loses a write, opens two databases of a tenant, mixes their data or drops one in use',
    runs: 60,
    mutants: 3,
  });
});
