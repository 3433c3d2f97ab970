import { readFile } from 'node:fs/promises';
import { type RunningScript, startScript } from '../test/support/command-line.ts';

/** A run of the command line, with its duration in ms and its peak memory in MB (NaN except on Linux). */
export interface RunningCommand {
  /** The output up to now. */
  readonly output: { stdout: string };
  readonly ended: Promise<CommandResult>;
  /** Sends SIGKILL. */
  kill(): void;
}

export interface CommandResult {
  readonly code: number | null;
  readonly ms: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly peakMb: number;
}

const memoryPollMs = 20;

/** Starts a script, and measures its duration and memory. */
export function startCommand(script: string, args: string[], environment: Record<string, string>): RunningCommand {
  return measureCommand(startScript(script, args, environment));
}

/** Measures the duration and the memory of a program that has just been started. */
export function measureCommand({ process: child, ended, output }: RunningScript): RunningCommand {
  const startedAt = performance.now();
  child.stdin.end();
  let peakMb = Number.NaN;
  const poll = setInterval(async () => {
    // VmHWM is the peak of the resident set up to now; only Linux has /proc.
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    const kilobytes = /^VmHWM:\s+(\d+)/m.exec(status)?.[1];
    if (kilobytes) peakMb = Number(kilobytes) / 1024;
  }, memoryPollMs);
  return {
    output,
    kill: () => child.kill('SIGKILL'),
    ended: ended
      .then(({ code, stdout, stderr }) => ({ code, stdout, stderr, ms: performance.now() - startedAt, peakMb }))
      .finally(() => clearInterval(poll)),
  };
}

/** Waits for the end of a command. @throws {Error} if its exit code is not 0 */
export async function succeeded(command: RunningCommand): Promise<CommandResult> {
  const result = await command.ended;
  if (result.code !== 0) throw new Error(`the command ended with ${result.code}: ${result.stderr}`);
  return result;
}
