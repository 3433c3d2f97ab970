import { expect } from 'chai';
import { findMutant } from '../simulation/mutants.ts';
import { parts } from '../simulation/parts.ts';
import { runSeeds } from '../simulation/run-seeds.ts';

const runs = 1_000;

describe('simulation', () => {
  it(`no fault breaks an invariant of the connection budget in ${runs} simulated runs`, async () => {
    const order = { part: 'budget', first: 1, runs, step: 1, trace: false } as const;
    await runSeeds(order, ({ seed, violation }) => expect(violation, `seed ${seed}`).to.equal(undefined));
  });

  for (const part of Object.values(parts))
    for (const mutant of part.mutants)
      it(`the simulation of ${part.name} finds the planted fault that ${mutant.name}`, async () => {
        expect(await findMutant(part, mutant, { first: mutant.seed, runs: 1_000 })).to.be.a('number');
      });
});
