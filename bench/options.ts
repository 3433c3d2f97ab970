import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type Kind, kinds } from './kinds.ts';
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
  readonly against: undefined;
}

/** Options of a comparison with another build. */
export interface AgainstOptions {
  /** The revision of the other build. */
  readonly against: string;
  readonly kinds: Kind[];
  readonly rounds: number;
  readonly seconds: number;
  /** Folder of CPU profiles. */
  readonly profile: string | undefined;
  readonly json: boolean;
  readonly help: boolean;
}

const defaults = { rounds: 5, seconds: 3, tenants: 1_000 };
/** The least of a report that others may rely on: three rounds show how far figures spread. */
const complete = { rounds: 3, seconds: 1, tenants: 1_000 };
const againstDefaults = { rounds: 12, seconds: 1 };
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

A complete run (all workloads, at least ${complete.rounds} rounds of ${complete.seconds} s and ${complete.tenants} tenants) replaces
bench/RESULTS.md.

Usage: npm run -s bench -- --against <revision> [options]

Compares this build, with its changes that are not committed, with that of a commit: whether it is slower. The commit is
checked out and installed in a temporary folder. Each build makes its own installation on the same PostgreSQL and Redis,
and both get the same requests in turn, in short rounds.

  --against <rev>     the commit, branch or tag to compare with
  --only <kinds>      measure only these kinds of requests, separated by commas (default: all)
  --rounds <n>        rounds of each kind; every round measures both builds (default ${againstDefaults.rounds})
  --seconds <n>       duration of each measurement (default ${againstDefaults.seconds})
  --profile <folder>  write a CPU profile of each service into a folder (its own cost is measured too)
  --json              print one JSON document with all measurements instead of tables

Kinds of requests:
${kinds.map(({ name, title }) => `  ${name.padEnd(12)}  ${title}`).join('\n')}`;

/** @throws {Error} on invalid arguments */
export function readOptions(args: string[]): Options | AgainstOptions {
  const { values } = parseArgs({
    args,
    options: {
      workload: { type: 'string', multiple: true },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      tenants: { type: 'string' },
      tuned: { type: 'boolean' },
      against: { type: 'string' },
      only: { type: 'string', multiple: true },
      profile: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const { against, json, help } = values;
  refuse(values, against === undefined ? againstOnly : workloadsOnly, against === undefined);
  const whole = (name: keyof typeof defaults, min: number): number => {
    const value = Number(
      values[name] ??
        (against === undefined ? defaults : { ...defaults, ...againstDefaults })[name],
    );
    if (Number.isInteger(value) && value >= min) return value;
    throw new Error(`--${name} must be an integer of at least ${min}`);
  };
  const rounds = whole('rounds', 1);
  const seconds = whole('seconds', 1);
  if (against !== undefined) {
    const chosen = choose('kind of request', kinds, values.only);
    const profile = values.profile === undefined ? undefined : resolve(values.profile);
    return { against, kinds: chosen, rounds, seconds, profile, json, help };
  }

  return {
    workloads: choose('workload', workloads, values.workload),
    rounds,
    seconds,
    tenants: whole('tenants', minTenants),
    tuned: values.tuned ?? false,
    json,
    help,
    against,
  };
}

const againstOnly = ['only', 'profile'] as const;
const workloadsOnly = ['workload', 'tenants', 'tuned'] as const;

/** @throws {Error} if one of these options is given */
function refuse(
  values: Readonly<Record<string, unknown>>,
  names: readonly string[],
  withoutAgainst: boolean,
): void {
  const given = names.find(name => values[name] !== undefined);
  if (given) {
    throw new Error(`--${given} ${withoutAgainst ? 'needs' : 'does not go with'} --against`);
  }
}

/**
 * Returns the items with the given names, in separate arguments or separated by commas; all if
 * there are none.
 */
function choose<Item extends { name: string }>(
  what: string,
  items: Item[],
  names: string[] | undefined,
): Item[] {
  if (!names) return items;
  return names
    .flatMap(list => list.split(','))
    .map(name => {
      const found = items.find(item => item.name === name.trim());
      if (found) return found;
      throw new Error(
        `unknown ${what} '${name}'; choose from: ${items.map(item => item.name).join(', ')}`,
      );
    });
}

/** Returns whether the report may replace bench/RESULTS.md. */
export function isComplete(options: Options): boolean {
  const { rounds, seconds, tenants } = options;
  const enough =
    rounds >= complete.rounds && seconds >= complete.seconds && tenants >= complete.tenants;
  return enough && options.workloads === workloads;
}
