import { readdir, readFile, readlink } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A process of this machine, as /proc shows it (Linux only). What this user may not read is
 * empty.
 */
export interface SeenProcess {
  readonly pid: number;
  readonly parent: number;
  /** The words of the command, separated by spaces. */
  readonly command: string;
  /** The path of the program. */
  readonly program: string;
  readonly workingFolder: string;
  /** The variables that it started with; each ends in NUL. */
  readonly environment: string;
}

const pollMs = 50;
const graceMs = 20_000;

/** Returns all running processes; none where there is no /proc. */
export async function seeProcesses(): Promise<SeenProcess[]> {
  const pids = (await readdir('/proc').catch(() => [])).map(Number).filter(pid => pid > 0);
  return (await Promise.all(pids.map(seeProcess))).filter(process => process !== undefined);
}

async function seeProcess(pid: number): Promise<SeenProcess | undefined> {
  const read = (name: string): Promise<string> =>
    readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '');
  const follow = (name: string): Promise<string> =>
    readlink(`/proc/${pid}/${name}`).catch(() => '');
  const [stat, command, environment] = [
    await read('stat'),
    await read('cmdline'),
    await read('environ'),
  ];
  // The name before the state stands in brackets, and may have any character. Z: ended, and not
  // waited for.
  const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (!state || state === 'Z') return undefined;
  const [program, workingFolder] = [await follow('exe'), await follow('cwd')];
  const words = command.replaceAll('\0', ' ').trim();
  return { pid, parent: Number(parent), command: words, program, workingFolder, environment };
}

/**
 * Ends processes, also those that they start meanwhile, and returns when none is left. SIGQUIT
 * lets PostgreSQL remove its shared memory; SIGCONT lets a stopped process receive it. What
 * remains after 20 s gets SIGKILL.
 */
export async function endProcesses(isMeant: (process: SeenProcess) => boolean): Promise<void> {
  const killAt = performance.now() + graceMs;
  for (;;) {
    const left = (await seeProcesses()).filter(seen => seen.pid !== process.pid && isMeant(seen));
    if (left.length === 0) return;
    const signals =
      performance.now() < killAt ? (['SIGQUIT', 'SIGCONT'] as const) : (['SIGKILL'] as const);
    for (const { pid } of left) for (const signal of signals) signalProcess(pid, signal);
    await sleep(pollMs);
  }
}

/** Returns whether a process has not ended, or has ended and was not waited for. */
export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/**
 * Sends a signal to a process, unless the process has ended.
 * @throws when there is no such number: 0 would be the group of this process, with mocha in it
 */
export function signalProcess(pid: number | undefined, signal: NodeJS.Signals): void {
  if (!pid) throw new Error(`there is no process for ${signal}`);
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
