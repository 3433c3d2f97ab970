import { expect } from 'chai';
import { simulateBudget } from '../simulation/budget-simulation.ts';
import { findMutant, mutants } from '../simulation/mutants.ts';
import { parts } from '../simulation/parts.ts';

/** The drill runs twice as many. */
const runs = 500;

describe('simulation of the connection budget', () => {
  it(`no fault of a process, the network or the control database breaks an invariant in ${runs} simulated runs`, () => {
    for (let seed = 1; seed <= runs; seed++) {
      try {
        simulateBudget({ seed });
      } catch (error) {
        throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
      }
    }
  });

  it('the same seed gives the same simulated run, step by step', () => {
    const run = (seed: number): string => {
      const trace: string[] = [];
      simulateBudget({ seed, trace });
      return trace.join('\n');
    };
    for (const seed of [1, 2, 3]) expect(run(seed)).to.equal(run(seed));
    expect(run(1)).not.to.equal(run(2));
    expect(run(1).length).to.be.greaterThan(10_000);
  });

  for (const mutant of mutants)
    it(`the simulation finds the planted fault that ${mutant.name}`, async () => {
      expect(await findMutant(parts.budget, mutant, { first: mutant.seed, runs: 1_000 })).to.be.a('number');
    });
});
