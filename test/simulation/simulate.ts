import { parseArgs } from 'node:util';
import { findMutant } from './mutants.ts';
import { type Part, type PartName, parts } from './parts.ts';
import { Violation } from './violation.ts';

const names = Object.keys(parts) as PartName[];
const usage = `npm run -s simulate -- [--part <part>] [--seed <first seed>] [--runs <number>] [--trace] [--mutants]

Runs the production code of a part on a simulated network, with faults: one run per seed. The same seed gives the same run.
  --part     ${names.join(', ')}; without it, all of them
  --seed     the first seed; 1 by default
  --runs     the number of seeds; 1000 by default
  --trace    print every step
  --mutants  plant each fault of test/simulation/mutants.ts and test/simulation/caches/cache-mutants.ts, and print the
             first seed that finds it`;

const progressMs = 10_000;

interface Settings {
  parts: Part[];
  first: number;
  runs: number;
  trace: boolean;
  mutants: boolean;
}

const settings = readSettings();
for (const part of settings?.parts ?? [])
  if (settings?.mutants) await findMutants(part, settings);
  else if (settings) await simulate(part, settings);

/** Returns undefined when there is nothing to run. */
function readSettings(): Settings | undefined {
  try {
    const { values } = parseArgs({
      options: {
        part: { type: 'string' },
        seed: { type: 'string', default: '1' },
        runs: { type: 'string', default: '1000' },
        trace: { type: 'boolean', default: false },
        mutants: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    const { part, seed, runs, trace, mutants, help } = values;
    if (help) {
      console.log(usage);
      return undefined;
    }
    const chosen = part === undefined ? names : names.filter(name => name === part);
    if (chosen.length === 0) throw new Error(`--part must be one of ${names.join(', ')}; not ${part}`);
    const first = wholeNumber('--seed', seed, 0);
    return { parts: chosen.map(name => parts[name]), first, runs: wholeNumber('--runs', runs, 1), trace, mutants };
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`);
    process.exitCode = 2;
    return undefined;
  }
}

function wholeNumber(option: string, text: string, min: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < min || value >= 2 ** 32)
    throw new Error(`${option} must be a whole number from ${min} to ${2 ** 32 - 1}; not ${text}`);
  return value;
}

async function simulate(part: Part, { first, runs, trace: isTraced }: Settings): Promise<void> {
  const run = await part.load();
  const start = performance.now();
  let reportedAt = start;
  let violations = 0;
  for (let seed = first; seed < first + runs; seed++) {
    const trace: string[] = [];
    try {
      await run(isTraced ? { seed, trace } : { seed });
    } catch (error) {
      if (!(error instanceof Violation)) throw error;
      violations++;
      console.error(`${part.name}, seed ${seed}: ${error.message}`);
      console.error(`  to replay: npm run -s simulate -- --part ${part.name} --seed ${seed} --runs 1 --trace`);
    }
    if (isTraced) console.log(trace.join('\n'));
    if (performance.now() - reportedAt < progressMs) continue;
    reportedAt = performance.now();
    console.error(`${part.name}: ${seed - first + 1} of ${runs} runs, ${violations} with a violation`);
  }
  const seconds = ((performance.now() - start) / 1_000).toFixed(1);
  console.log(`${part.name}: ${runs} runs in ${seconds} s, ${violations} with a violation`);
  if (violations > 0) process.exitCode = 1;
}

async function findMutants(part: Part, seeds: Settings): Promise<void> {
  for (const mutant of part.mutants) {
    const seed = await findMutant(part, mutant, seeds);
    console.log(
      seed === undefined
        ? `${part.name}: not found: ${mutant.name}`
        : `${part.name}: found by seed ${seed}: ${mutant.name}`,
    );
    if (seed === undefined) process.exitCode = 1;
  }
}
