import { runScript, startScript } from '../test/support/command-line.ts';
import type { NextBuild } from '../test/support/next-build.ts';
import { progress } from './bench-progress.ts';
import { measureCommand } from './fleet-command.ts';
import { table } from './report.ts';

/** A command of the operator that is timed. */
interface TimedCommand {
  readonly args: readonly string[];
  /** What an operator would type, if that is not the same. */
  readonly typed?: string;
  /** Reads what the command printed. */
  readonly note?: (printed: string) => string;
}

/** The commands that were timed, with the program of the build that an installation has. */
export class LifeTable {
  readonly #environment: Record<string, string>;
  readonly #lines: { cells: string[]; notes: string[] }[] = [];
  #program = 'scripts/backoffice.ts';

  /** @param environment the settings of the operator's host */
  constructor(environment: Record<string, string>) {
    this.#environment = environment;
  }

  /** Runs further commands with the program of this build. */
  use(build: NextBuild): void {
    this.#program = build.file('scripts/backoffice.ts');
  }

  /**
   * Runs a command, and adds its time.
   * @returns what it prints
   * @throws {Error} when it fails
   */
  async time(what: string, { args, typed = args.join(' '), note }: TimedCommand): Promise<string> {
    progress(`${what}: ${typed}`);
    const { ms, peakMb, stdout } = await measureCommand(
      startScript(this.#program, [...args], this.#environment),
    );

    const seconds = ms / 1_000;
    const notes = [note?.(stdout) ?? ''].filter(Boolean);
    const cells = [what, `\`${typed}\``, timeText(seconds), `${Math.round(peakMb)}`];
    this.#lines.push({ cells, notes });
    progress(`  ${timeText(seconds)}`);
    return stdout;
  }

  /** Adds what was seen beside the last command. */
  note(text: string): void {
    this.#lines.at(-1)?.notes.push(text);
  }

  /** Runs a command that is not timed. */
  async run(...args: string[]): Promise<void> {
    await this.runWith('', ...args);
  }

  /**
   * Runs a command that is not timed.
   * @param input what it reads
   */
  async runWith(input: string, ...args: string[]): Promise<void> {
    const { code, stderr } = await runScript(this.#program, args, this.#environment, input);
    if (code !== 0) throw new Error(`${args.join(' ')} failed: ${stderr}`);
  }

  markdown(): string {
    const lines = this.#lines.map(({ cells, notes }) => [...cells, notes.join('; ')]);
    return table(['What', 'Command', 'Time', 'Memory, MB', 'Seen'], lines);
  }
}

function timeText(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
