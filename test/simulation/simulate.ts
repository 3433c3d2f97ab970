import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import { findMutant } from './mutants.ts';
import { type Part, type PartName, parts } from './parts.ts';
import { runSeeds, type SeedOrder, type SeedResult } from './run-seeds.ts';

const names = Object.keys(parts) as PartName[];
const usage = `npm run -s simulate -- [--part <part>] [--seed <first seed>] [--runs <number>] [--trace] [--mutants]

Runs the production code of a part on a simulated network, with faults: one run per seed. The same seed gives the same run.
  --part     ${names.join(', ')}; without it, all of them
  --seed     the first seed; 1 by default
  --runs     the number of seeds; 1000 by default
  --trace    print every step
  --mutants  plant each fault (mutants.ts, and the file of that name of each part), and print the first seed that
             finds it`;

const progressMs = 10_000;
/** A worker takes a second to start. */
const minParallelRuns = 100;

interface Settings {
  parts: Part[];
  first: number;
  runs: number;
  trace: boolean;
  mutants: boolean;
}

const settings = readSettings();
for (const part of settings?.parts ?? []) {
  if (settings?.mutants) await findMutants(part, settings);
  else if (settings) await simulate(part, settings);
}

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
    if (chosen.length === 0) {
      throw new Error(`--part must be one of ${names.join(', ')}; not ${part}`);
    }

    const first = wholeNumber('--seed', seed, 0);
    return {
      parts: chosen.map(name => parts[name]),
      first,
      runs: wholeNumber('--runs', runs, 1),
      trace,
      mutants,
    };
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`);
    process.exitCode = 2;
    return undefined;
  }
}

function wholeNumber(option: string, text: string, min: number): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < min || value >= 2 ** 32) {
    throw new Error(`${option} must be a whole number from ${min} to ${2 ** 32 - 1}; not ${text}`);
  }
  return value;
}

/** Runs the seeds on all cores, or on one when the steps are printed. */
async function simulate(part: Part, settings: Settings): Promise<void> {
  const { runs, trace } = settings;
  const start = performance.now();
  let reportedAt = start;
  let done = 0;
  let violations = 0;

  const onResult = ({ seed, violation, trace: steps }: SeedResult): void => {
    done++;
    if (steps) console.log(steps);
    if (violation !== undefined) {
      violations++;
      console.error(`${part.name}, seed ${seed}: ${violation}`);
      console.error(
        `  to replay: npm run -s simulate -- --part ${part.name} --seed ${seed} --runs 1 --trace`,
      );
    }

    if (performance.now() - reportedAt < progressMs) return;
    reportedAt = performance.now();
    console.error(`${part.name}: ${done} of ${runs} runs, ${violations} with a violation`);
  };

  if (trace || runs < minParallelRuns) {
    await runSeeds({ ...settings, part: part.name, step: 1 }, onResult);
  } else {
    await runOnAllCores(part, settings, onResult);
  }

  const seconds = ((performance.now() - start) / 1_000).toFixed(1);
  console.log(`${part.name}: ${runs} runs in ${seconds} s, ${violations} with a violation`);
  if (violations > 0) process.exitCode = 1;
}

async function runOnAllCores(
  part: Part,
  settings: Settings,
  onResult: (result: SeedResult) => void,
): Promise<void> {
  const cores = availableParallelism();
  const workers = Array.from({ length: cores }, (_, index) => {
    const { first, runs, trace } = settings;
    const order: SeedOrder = {
      part: part.name,
      first: first + index,
      runs: runs - index,
      trace,
      step: cores,
    };
    const worker = new Worker(new URL('seed-worker.ts', import.meta.url), {
      workerData: order,
      // a run leaves much that is soon unreachable
      resourceLimits: { maxYoungGenerationSizeMb: 64 },
    });
    worker.on('message', onResult);
    return once(worker, 'exit'); // rejects with an error that is no violation
  });
  await Promise.all(workers);
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
