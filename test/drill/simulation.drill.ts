import { expect } from 'chai';
import { findMutant } from '../simulation/mutants.ts';
import { parts } from '../simulation/parts.ts';

describe('simulation', () => {
  for (const part of Object.values(parts)) {
    for (const mutant of part.mutants) {
      it(`the simulation of ${part.name} finds the planted fault that ${mutant.name}`, async () => {
        expect(await findMutant(part, mutant, { first: mutant.seed, runs: 1_000 })).to.be.a(
          'number',
        );
      });
    }
  }
});
