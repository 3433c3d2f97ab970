import { parseArgs } from 'node:util';
import type { Work } from './workload.ts';
import { works } from './workloads/index.ts';

export interface Options {
  readonly works: Work[];
  readonly rounds: number;
  readonly seconds: number;
  readonly tenants: number;
  readonly json: boolean;
  readonly help: boolean;
}

export const defaults = { rounds: 5, seconds: 3, tenants: 1_000 };
const fewestTenants = 12; // ten whose people log in, one that floods another, some that are cold

export const help = `Usage: npm run -s bench -- [options]

Measures the service beside two baselines, the limit (bare node:http + pg) and a peer (Fastify), all in one run.

  --work <names>    only these, separated by commas (default: all)
  --rounds <n>      of each work, A B A B (default ${defaults.rounds})
  --seconds <n>     of each measurement (default ${defaults.seconds})
  --tenants <n>     tenants that are provisioned, ${fewestTenants} or more (default ${defaults.tenants}; about 9 MB of disk each, under TMPDIR)
  --json            one JSON document instead of tables
  --help

Works:
${works.map(({ name, title }) => `  ${name.padEnd(12)} ${title}`).join('\n')}

A complete run (all works, no fewer rounds, seconds and tenants than by default) is kept as bench/RESULTS.md.`;

/** @throws {Error} saying what is wrong with the arguments */
export function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      work: { type: 'string', multiple: true },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      tenants: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const whole = (name: keyof typeof defaults, least: number): number => {
    const value = Number(values[name] ?? defaults[name]);
    if (Number.isInteger(value) && value >= least) return value;
    throw new Error(`--${name} must be a whole number, ${least} or more`);
  };
  return {
    works: values.work ? values.work.flatMap(names => names.split(',')).map(findWork) : works,
    rounds: whole('rounds', 1),
    seconds: whole('seconds', 1),
    tenants: whole('tenants', fewestTenants),
    json: values.json,
    help: values.help,
  };
}

function findWork(name: string): Work {
  const found = works.find(work => work.name === name.trim());
  if (found) return found;
  throw new Error(`there is no work '${name}'; there are: ${works.map(work => work.name).join(', ')}`);
}

export function isComplete(options: Options): boolean {
  const { rounds, seconds, tenants } = options;
  const enough = rounds >= defaults.rounds && seconds >= defaults.seconds && tenants >= defaults.tenants;
  return enough && options.works === works;
}
