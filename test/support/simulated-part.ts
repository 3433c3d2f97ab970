import { expect } from 'chai';
import { findMutant, plant } from '../simulation/mutants.ts';
import { type PartName, parts } from '../simulation/parts.ts';
import { runSeeds } from '../simulation/run-seeds.ts';

interface Extent {
  /** The promise that no run breaks, as a whole sentence. */
  promise: string;
  runs: number;
  /** The number of planted faults that are looked for. The drill finds all of them. */
  mutants: number;
}

/**
 * Adds the tests of a simulated part: runs without violation, equal traces of equal seeds, and
 * planted faults.
 */
export function testSimulatedPart(name: PartName, { promise, runs, mutants }: Extent): void {
  const part = parts[name];

  it(`${promise}, in ${runs} simulated runs`, async () => {
    const order = { part: name, first: 1, runs, step: 1, trace: false };
    await runSeeds(order, ({ seed, violation }) =>
      expect(violation, `seed ${seed}`).to.equal(undefined),
    );
  });

  it(`the same seed gives the same simulated run of ${name}, step by step`, async () => {
    const run = async (seed: number): Promise<string> => {
      let steps = '';
      await runSeeds(
        { part: name, first: seed, runs: 1, step: 1, trace: true },
        ({ trace = '' }) => {
          steps = trace;
        },
      );
      return steps;
    };

    for (const seed of [1, 2, 3]) expect(await run(seed)).to.equal(await run(seed));

    const first = await run(1);
    expect(await run(2)).not.to.equal(first);
    expect(first.length).to.be.greaterThan(1_000);
  });

  it(`each fault that the drill plants into ${name} still has its place in the source code`, async () => {
    await Promise.all(part.mutants.map(plant));
  });

  for (const mutant of part.mutants.slice(0, mutants)) {
    it(`the simulation of ${name} finds the planted fault that ${mutant.name}`, async () => {
      expect(await findMutant(part, mutant, { first: mutant.seed, runs: 1_000 })).to.be.a('number');
    });
  }
}
