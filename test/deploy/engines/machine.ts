import { execFile, spawnSync } from 'node:child_process';
import type { ScriptResult } from '../../support/command-line.ts';

/**
 * The variable that says that everything on this machine may be changed, and how it has to
 * read.
 */
const [variable, disposable] = ['DRILL_MACHINE', 'disposable'];

/**
 * Returns why what changes a machine is left out here; undefined if it can be done.
 * @param engine program that responds where the engine runs, and its arguments
 */
export function whyLeftOut(
  engine: readonly [program: string, ...args: string[]],
): string | undefined {
  const [program, ...args] = engine;
  if (process.env[variable] !== disposable) {
    return `left out, because it changes this machine, which is not ${variable}=${disposable}`;
  }

  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8' });
  if (status === 0) return undefined;

  return `left out: ${[program, ...args].join(' ')} fails (${error ?? stderr.trim()})`;
}

/**
 * Skips a drill that types the lines of a page, and prints the reason, if it cannot run here.
 * @param engine as for `whyLeftOut`
 */
export function skipIfLeftOut(
  drill: Pick<Mocha.Context, 'skip'>,
  engine: Parameters<typeof whyLeftOut>[0],
): void {
  const reason = whyLeftOut(engine);
  if (!reason) return;

  console.log(`      the lines of the page: ${reason}`);
  drill.skip();
}

/**
 * A shell in which somebody types the lines of a page, on this machine. Each block gets a shell
 * of its own.
 */
export class Terminal {
  readonly folder: string;
  readonly #definitions: string;

  /**
   * @param folder in which the lines are typed
   * @param definitions lines that somebody types first in each shell
   */
  constructor(folder: string, definitions = '') {
    this.folder = folder;
    this.#definitions = definitions;
  }

  /** Returns this terminal, with further lines that come first in each shell. */
  with(definitions: string): Terminal {
    return new Terminal(this.folder, `${this.#definitions}${definitions}\n`);
  }

  /** Types lines, up to the first one that fails, without a terminal and without input. */
  try(lines: string): Promise<ScriptResult> {
    const script = `set -e -o pipefail\n${this.#definitions}\n${lines}`;

    return new Promise(resolve => {
      const options = { cwd: this.folder, maxBuffer: 2 ** 28 };
      const child = execFile('bash', ['-c', script], options, (error, stdout, stderr) => {
        resolve({
          code: error ? Number(error.code ?? 1) : 0,
          signal: error?.signal ?? null,
          stdout,
          stderr,
        });
      });
      child.stdin?.end();
    });
  }

  /**
   * Types lines of which none may fail.
   * @returns what they print
   */
  async type(lines: string): Promise<string> {
    const { code, stdout, stderr } = await this.try(lines);
    if (code !== 0) throw new Error(`exit code ${code} of:\n${lines}\n${stdout}\n${stderr}`);

    return stdout;
  }
}
