import { readdir, readFile } from 'node:fs/promises';

/** CPU times of a process, from /proc/<pid>/stat, in ms. */
interface Stat {
  readonly parent: number;
  readonly ownMs: number;
  /** CPU time of ended children that the process has waited for. */
  readonly endedMs: number;
}

const tickMs = 10; // USER_HZ is 100 on every Linux that Node runs on

/** @returns undefined where there is no /proc, or when the process has ended */
async function readStat(pid: number | string): Promise<Stat | undefined> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // The second field is the name in parentheses, which may contain spaces; the split starts at
  // the third (proc(5)).
  const fields = line
    .slice(line.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const [parent, user, system, endedUser, endedSystem] = [1, 11, 12, 13, 14].map(
    index => fields[index],
  );
  if (parent === undefined || endedSystem === undefined) return undefined;
  return {
    parent,
    ownMs: ((user ?? 0) + (system ?? 0)) * tickMs,
    endedMs: ((endedUser ?? 0) + endedSystem) * tickMs,
  };
}

/**
 * Returns the CPU time of the threads of a process to the nanosecond, in ms. The time in `stat`
 * is a whole number of ticks, which is coarse for the many backends of PostgreSQL that work a
 * little each.
 * @returns undefined on a kernel without `schedstat`, or when the process has ended
 */
async function exactMs(pid: number): Promise<number | undefined> {
  const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
  const texts = await Promise.all(
    threads.map(thread =>
      readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').catch(() => ''),
    ),
  );
  if (!texts.some(text => text !== '')) return undefined;

  return texts.reduce((sum, text) => sum + Number(text.split(' ')[0]), 0) / 1e6;
}

/** Returns the CPU time of a process with all its threads, in ms; NaN if unknown. */
export async function cpuOf(pid: number | undefined): Promise<number> {
  if (!pid) return Number.NaN;
  return (await exactMs(pid)) ?? (await readStat(pid))?.ownMs ?? Number.NaN;
}

/**
 * Returns the CPU time of a process, its running and its ended children, in ms: PostgreSQL with
 * its backends.
 */
export async function cpuOfFamily(pid: number): Promise<number> {
  const first = await readStat(pid);
  if (!first) return Number.NaN;
  const pids = (await readdir('/proc')).filter(name => /^\d+$/.test(name)).map(Number);
  const stats = await Promise.all(
    pids.map(async each => ({ pid: each, parent: (await readStat(each))?.parent })),
  );
  const family = [pid, ...stats.filter(({ parent }) => parent === pid).map(child => child.pid)];
  const times = await Promise.all(family.map(cpuOf));
  // A child that ended meanwhile is in neither sum: its time would be missing.
  const last = await readStat(pid);
  if (last && last.endedMs !== first.endedMs) return cpuOfFamily(pid);

  return times.reduce((sum, ms) => sum + (Number.isNaN(ms) ? 0 : ms), first.endedMs);
}

/** Returns the resident memory of a process, in MB; NaN if unknown. */
export async function residentMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? Number.NaN) / 1024;
}
