import { appendFile, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { Context } from 'mocha';
import { root } from './command-line.ts';
import { suiteFolder } from './test-server.ts';

const shown = 10;
const durations = (): string => join(suiteFolder(), 'durations');
let startedAt = 0;

/** Hooks of mocha that store how long each test file takes. Workers run them once per file. */
export const timeFiles = {
  beforeAll(): void {
    startedAt = performance.now();
  },
  async afterAll(this: Context): Promise<void> {
    const files = new Set(this.test?.parent?.suites.map(({ file }) => file));
    const [file] = files;
    if (files.size !== 1 || !file) return; // without workers, they run once for all files
    await appendFile(durations(), `${performance.now() - startedAt} ${relative(root, file)}\n`);
  },
};

/**
 * Returns the lines to print at the end of a run, the slowest file first; nothing after a run
 * of a single file.
 */
export async function slowestFiles(): Promise<string> {
  const stored = (await readFile(durations(), 'utf8').catch(() => '')).trim().split('\n');
  if (stored.length < 2) return '';
  const files = stored.map(line => ({
    seconds: Number.parseFloat(line) / 1_000,
    file: line.replace(/^\S+ /, ''),
  }));
  const slowest = files.sort((a, b) => b.seconds - a.seconds).slice(0, shown);
  const lines = slowest.map(
    ({ seconds, file }) => `${seconds.toFixed(1).padStart(8)} s  ${file}\n`,
  );
  return `\n  The slowest files:\n${lines.join('')}`;
}
