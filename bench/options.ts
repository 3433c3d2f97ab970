import { parseArgs } from 'node:util';
import type { Workload } from './workload.ts';
import { workloads } from './workloads/index.ts';

export interface Options {
  readonly workloads: Workload[];
  readonly rounds: number;
  readonly seconds: number;
  readonly tenants: number;
  readonly tuned: boolean;
  readonly json: boolean;
  readonly help: boolean;
}

const defaults = { rounds: 5, seconds: 3, tenants: 1_000 };
const minTenants = 12; // 10 with users for measured logins, and some cold ones

export const help = `Usage: npm run -s bench -- [options]

Measures the service, the raw-pg baseline (bare node:http and pg) and the Fastify reference in the same run, on
PostgreSQL with its own defaults.

  --workload <names>  run only these workloads, separated by commas (default: all)
  --rounds <n>        rounds of each workload; every round measures all cases in turn (default ${defaults.rounds})
  --seconds <n>       duration of each measurement (default ${defaults.seconds})
  --tenants <n>       number of tenants, at least ${minTenants} (default ${defaults.tenants}); 9 MB of disk each
  --tuned             measure a second server of PostgreSQL, which is tuned, in turn with the first; twice the
                      disk and time
  --json              print one JSON document instead of tables
  --help              print this help

Workloads:
${workloads.map(({ name, title }) => `  ${name.padEnd(12)}  ${title}`).join('\n')}

A complete run (all workloads, at least the default rounds, seconds and tenants) replaces bench/RESULTS.md.`;

/** @throws {Error} on invalid arguments */
export function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      workload: { type: 'string', multiple: true },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      tenants: { type: 'string' },
      tuned: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const whole = (name: keyof typeof defaults, min: number): number => {
    const value = Number(values[name] ?? defaults[name]);
    if (Number.isInteger(value) && value >= min) return value;
    throw new Error(`--${name} must be an integer of at least ${min}`);
  };
  return {
    workloads: values.workload ? values.workload.flatMap(names => names.split(',')).map(findWorkload) : workloads,
    rounds: whole('rounds', 1),
    seconds: whole('seconds', 1),
    tenants: whole('tenants', minTenants),
    tuned: values.tuned,
    json: values.json,
    help: values.help,
  };
}

function findWorkload(name: string): Workload {
  const found = workloads.find(workload => workload.name === name.trim());
  if (found) return found;
  throw new Error(`unknown workload '${name}'; choose from: ${workloads.map(workload => workload.name).join(', ')}`);
}

/** Returns whether the report may replace bench/RESULTS.md. */
export function isComplete(options: Options): boolean {
  const { rounds, seconds, tenants } = options;
  const enough = rounds >= defaults.rounds && seconds >= defaults.seconds && tenants >= defaults.tenants;
  return enough && options.workloads === workloads;
}
