import { parseArgs } from 'node:util';
import { simulateBudget } from './budget-simulation.ts';
import { findMutant, mutants } from './mutants.ts';
import { Violation } from './violation.ts';

const usage = `npm run simulate -- [--seed <first seed>] [--runs <number>] [--trace] [--mutants]

Simulates the processes that share a connection budget, one run per seed. The same seed gives the same run.
  --trace    print every step
  --mutants  plant each fault of test/simulation/mutants.ts, and print the first seed that finds it`;

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    runs: { type: 'string', default: '1000' },
    trace: { type: 'boolean', default: false },
    mutants: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const seeds = { first: Number(values.seed), runs: Number(values.runs) };
if (values.help) console.log(usage);
else if (values.mutants) await findMutants();
else simulate();

function simulate(): void {
  const start = performance.now();
  let violations = 0;
  for (let seed = seeds.first; seed < seeds.first + seeds.runs; seed++) {
    const trace: string[] = [];
    try {
      simulateBudget(values.trace ? { seed, trace } : { seed });
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      violations++;
      console.error(`seed ${seed}: ${error.message}`);
    }
    if (values.trace) console.log(trace.join('\n'));
  }
  const seconds = ((performance.now() - start) / 1_000).toFixed(1);
  console.log(`${seeds.runs} runs in ${seconds} s, ${violations} with a violation`);
  if (violations > 0) process.exitCode = 1;
}

async function findMutants(): Promise<void> {
  for (const mutant of mutants) {
    const seed = await findMutant(mutant, seeds);
    console.log(seed === undefined ? `not found: ${mutant.name}` : `found by seed ${seed}: ${mutant.name}`);
    if (seed === undefined) process.exitCode = 1;
  }
}
