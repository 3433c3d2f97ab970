import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Mutant } from './mutant.ts';
import type { Part } from './parts.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

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
 * Returns the first seed of a range whose run finds a mutant of a part; undefined when none
 * does.
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
    for (const folder of part.folders) {
      await cp(join(root, folder), join(copy, folder), { recursive: true });
    }
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
