import { readdir, readFile } from 'node:fs/promises';

/** CPU times of a process, from /proc/<pid>/stat. */
interface Stat {
  readonly parent: number;
  readonly ownTicks: number;
  /** CPU time of ended children that the process has waited for. */
  readonly endedTicks: number;
}

const tickMs = 10; // USER_HZ is 100 on every Linux that Node runs on

/** @returns undefined where there is no /proc, or when the process has ended */
async function readStat(pid: number | string): Promise<Stat | undefined> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // The second field is the name in parentheses, which may contain spaces; the split starts at the third (proc(5)).
  const fields = line
    .slice(line.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const [parent, user, system, endedUser, endedSystem] = [1, 11, 12, 13, 14].map(index => fields[index]);
  if (parent === undefined || endedSystem === undefined) return undefined;
  return { parent, ownTicks: (user ?? 0) + (system ?? 0), endedTicks: (endedUser ?? 0) + endedSystem };
}

/** Returns the CPU time of a process with all its threads, in ms; NaN if unknown. */
export async function cpuOf(pid: number | undefined): Promise<number> {
  const stat = pid ? await readStat(pid) : undefined;
  return stat ? stat.ownTicks * tickMs : Number.NaN;
}

/** Returns the CPU time of a process, its running and its ended children, in ms: PostgreSQL with its backends. */
export async function cpuOfFamily(pid: number): Promise<number> {
  const first = await readStat(pid);
  if (!first) return Number.NaN;
  const pids = (await readdir('/proc')).filter(name => /^\d+$/.test(name));
  const children = (await Promise.all(pids.map(readStat))).filter(stat => stat?.parent === pid);
  return children.reduce((sum, stat) => sum + (stat?.ownTicks ?? 0), first.ownTicks + first.endedTicks) * tickMs;
}

/** Returns the resident memory of a process, in MB; NaN if unknown. */
export async function residentMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? Number.NaN) / 1024;
}
