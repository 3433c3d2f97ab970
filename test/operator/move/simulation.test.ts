import { expect } from 'chai';
import { moveMutants } from '../../simulation/moves/move-mutants.ts';
import { simulateMoves } from '../../simulation/moves/move-simulation.ts';
import { findMutant } from '../../simulation/mutants.ts';
import { parts } from '../../simulation/parts.ts';

/** The drill finds every planted fault. */
const runs = 30;

describe('simulation of moves', () => {
  it(`no fault of a run or of a process loses a write or opens two databases in ${runs} simulated runs`, () => {
    for (let seed = 1; seed <= runs; seed++) {
      try {
        simulateMoves({ seed });
      } catch (error) {
        throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
      }
    }
  });

  it('the same seed gives the same simulated move, step by step', () => {
    const run = (seed: number): string => {
      const trace: string[] = [];
      simulateMoves({ seed, trace });
      return trace.join('\n');
    };
    expect(run(1)).to.equal(run(1));
    expect(run(1)).not.to.equal(run(2));
  });

  for (const mutant of moveMutants.slice(0, 4))
    it(`the simulation of moves finds the planted fault that ${mutant.name}`, async () => {
      expect(await findMutant(parts.moves, mutant, { first: mutant.seed, runs: 100 })).to.be.a('number');
    });
});
