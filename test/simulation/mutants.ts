import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Part } from './parts.ts';

/** A fault that is planted in a copy of the source code. The simulation must find it. */
export interface Mutant {
  readonly name: string;
  readonly file: string;
  readonly text: string;
  readonly replacement: string;
  /** A seed that finds it. After a change of the simulation, others do. */
  readonly seed: number;
}

const root = fileURLToPath(new URL('../..', import.meta.url));

export const mutants: readonly Mutant[] = [
  {
    name: 'the limit rises before the change is confirmed',
    file: 'src/budget/grant-holder.ts',
    text: 'this.#limit = Math.min(this.#limit, target);',
    replacement: 'this.#limit = target;',
    seed: 1,
  },
  {
    name: 'a grant falls below the connections that still exist',
    file: 'src/budget/plan-exchange.ts',
    text: 'granted: Math.max(target, Math.min(held, granted)),',
    replacement: 'granted: target,',
    seed: 1,
  },
  {
    name: 'closing connections are not counted',
    file: 'test/simulation/simulated-pool.ts',
    text: 'held: this.#connections.size,',
    replacement: "held: this.#connections.size - this.#count('closing'),",
    seed: 1,
  },
  {
    name: 'a change that is outdated has an effect',
    file: 'test/simulation/simulated-control.ts',
    text: 'if (change.version !== before.version) return false;',
    replacement: '',
    seed: 1,
  },
  {
    name: 'the grant of a silent process is removed although its connections exist',
    file: 'src/budget/grant-holder.ts',
    text: 'if (!reply.of.includes(grant.holder))',
    replacement: '',
    seed: 1,
  },
  {
    name: 'the grant of a silent process does not count',
    file: 'src/budget/plan-exchange.ts',
    text: 'const allGranted = granted + sum(remaining, grant => grant.granted);',
    replacement: 'const allGranted = granted + sum(others, grant => grant.granted);',
    seed: 18,
  },
  {
    name: 'the grant of a process without connections is removed although it is not silent',
    file: 'src/budget/silence.ts',
    text: 'return this.#silentMs(holder) >= silenceMs;',
    replacement: 'return this.#silentMs(holder) >= 0;',
    seed: 1,
  },
  {
    name: 'a connection is opened without a look at the time',
    file: 'src/budget/exchange-times.ts',
    text: 'return now - this.#confirmedAt < freshMs;',
    replacement: 'return this.#confirmedAt > Number.NEGATIVE_INFINITY;',
    seed: 41,
  },
  {
    name: 'a process that was stopped goes on with a login',
    file: 'test/simulation/simulated-pool.ts',
    text: 'mayContinue: () => mayOpen() && this.#connections.size <= holder.limit,',
    replacement: 'mayContinue: () => true,',
    seed: 86,
  },
  {
    name: 'the time without control database counts as silence',
    file: 'src/budget/silence.ts',
    text: 'gap <= maxGapMs',
    replacement: 'gap > 0',
    seed: 2,
  },
  {
    name: 'nobody gives back',
    file: 'src/budget/plan-exchange.ts',
    text: 'Math.min(lent, missing - free)',
    replacement: '0',
    seed: 1,
  },
  {
    name: 'every process keeps an equal part',
    file: 'src/budget/fair-shares.ts',
    text: 'Math.min(max, lacking(demand), rest)',
    replacement: 'capacity / demands.length',
    seed: 1,
  },
  {
    name: 'the reserve for commands and new processes is not left free',
    file: 'src/budget/plan-exchange.ts',
    text: 'const free = usable - allReserved - allGranted;',
    replacement: 'const free = smallest - allReserved - allGranted;',
    seed: 1,
  },
  {
    name: 'connections to the control database are not counted',
    file: 'src/budget/plan-exchange.ts',
    text: 'reserved: reserved + growth,',
    replacement: 'reserved: base,',
    seed: 1,
  },
  {
    name: 'commands have no priority',
    file: 'src/budget/fair-shares.ts',
    text: "if (demand.kind === 'command') give(demand, maxNested - 1);",
    replacement: ';',
    seed: 1,
  },
  {
    name: 'the connections of a silent process are never ended',
    file: 'src/budget/grant-holder.ts',
    text: 'this.#silent.filter(grant => silence.mayEnd(grant))',
    replacement: '[]',
    seed: 1,
  },
  {
    name: 'new processes connect at the same moment, without waiting for their turns',
    file: 'test/simulation/simulated-process.ts',
    text: 'return this.hasEntered || this.#world.turn.take(this);',
    replacement: 'return true;',
    seed: 1,
  },
  {
    name: 'processes that end return their last connection without waiting for their turns',
    file: 'test/simulation/simulated-pool.ts',
    text: '!this.#control || this.#world.turn.take(this.#process)',
    replacement: 'true',
    seed: 13,
  },
  {
    name: 'no connection is kept free on the server of the control database for the process whose turn it is',
    file: 'src/budget/plan-exchange.ts',
    text: 'forEntries: Math.ceil(always / 2)',
    replacement: 'forEntries: 0',
    seed: 1,
  },
];

/**
 * Returns the source code of a mutant's file with the fault in it.
 * @throws when the file does not contain the text of the mutant exactly once
 */
export async function plant({ file, text, replacement }: Mutant): Promise<string> {
  const source = await readFile(join(root, file), 'utf8');
  if (source.split(text).length !== 2) throw new Error(`${file} has no or many: ${text}`);
  return source.replace(text, () => replacement);
}

/**
 * Returns the first seed of a range whose run finds a mutant of a part; undefined when none does.
 * @throws as `plant`
 */
export async function findMutant(
  part: Part,
  mutant: Mutant,
  seeds: { first: number; runs: number },
): Promise<number | undefined> {
  const copy = await mkdtemp(join(tmpdir(), 'mutant-'));
  try {
    await writeFile(join(copy, 'package.json'), '{ "type": "module" }');
    await symlink(join(root, 'node_modules'), join(copy, 'node_modules'));
    for (const folder of part.folders) await cp(join(root, folder), join(copy, folder), { recursive: true });
    await writeFile(join(copy, mutant.file), await plant(mutant));
    const { parts } = (await import(
      pathToFileURL(join(copy, 'test/simulation/parts.ts')).href
    )) as typeof import('./parts.ts');
    const simulate = await (parts[part.name] as Part).load();
    for (let seed = seeds.first; seed < seeds.first + seeds.runs; seed++) {
      try {
        await simulate({ seed });
      } catch (error) {
        if ((error as Error).name !== 'Violation') throw error;
        return seed;
      }
    }
    return undefined;
  } finally {
    await rm(copy, { recursive: true });
  }
}
