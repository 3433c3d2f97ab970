import { readFile } from 'node:fs/promises';
import type { RunningScript } from '../test/support/command-line.ts';

/** The time and output of a command; the peak memory is NaN except on Linux. */
interface CommandResult {
  readonly ms: number;
  readonly peakMb: number;
  readonly stdout: string;
}

const memoryPollMs = 20;

/**
 * Measures a command that has just been started, until it ends.
 * @throws {Error} if its exit code is not 0
 */
export async function measureCommand({
  process: child,
  ended,
}: RunningScript): Promise<CommandResult> {
  const startedAt = performance.now();
  child.stdin.end();
  let peakMb = Number.NaN;
  const poll = setInterval(async () => {
    // VmHWM is the peak of the resident set up to now; only Linux has /proc.
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '');
    const kilobytes = /^VmHWM:\s+(\d+)/m.exec(status)?.[1];
    if (kilobytes) peakMb = Number(kilobytes) / 1024;
  }, memoryPollMs);
  const { code, stdout, stderr } = await ended.finally(() => clearInterval(poll));
  if (code !== 0) throw new Error(`the command ended with ${code}: ${stderr}`);
  return { ms: performance.now() - startedAt, peakMb, stdout };
}
