import { lstat, readdir, readFile, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** A server, as its pid file describes it. */
export interface RunningPostgres {
  readonly pid: number;
  readonly port: number;
  /** True once the server accepts connections on its port. */
  readonly isReady: boolean;
}

/**
 * PostgreSQL writes its pid into this file of the data folder, and removes the file when it
 * stops.
 */
export const pidFile = (data: string): string => join(data, 'postmaster.pid');

/**
 * Returns the server that the pid file of a data folder describes; undefined without such a
 * file. The server may have been killed, and its number may belong to another process by now.
 */
export async function readPidFile(data: string): Promise<RunningPostgres | undefined> {
  const lines = (await readFile(pidFile(data), 'utf8').catch(() => '')).split('\n');
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  if (!pid) return undefined;

  // The file has the port before the server listens on it: another server may have that port.
  const isReady = ['ready', 'standby'].includes(lines[7]?.trim() ?? '');
  return { pid, port, isReady };
}

/**
 * Returns the server that runs on a data folder; undefined without one, and for one in a
 * container that hides it.
 */
export async function findRunningPostgres(data: string): Promise<RunningPostgres | undefined> {
  const server = await readPidFile(data);
  return server && (await isServerOf(data, server.pid)) ? server : undefined;
}

/**
 * Checks that the process is a server on this very folder: after a restart another process may
 * have the number.
 */
export async function isServerOf(data: string, pid: number): Promise<boolean> {
  if (process.platform === 'linux') {
    // Device and inode identify a folder under any name, also after a rename.
    const [own, its] = await Promise.all(
      [data, workingFolder(pid)].map(path => stat(path).catch(() => undefined)),
    );
    return own !== undefined && own.dev === its?.dev && own.ino === its.ino;
  }
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** The working folder of a server is its data folder. */
const workingFolder = (pid: number | string): string => `/proc/${pid}/cwd`;

/**
 * Returns true if a process that can be seen here is a server on a data folder, in whatever
 * container, and under whatever mount of the folder.
 * @param mark the path, from the data folder, of a file that was just made, and that no other
 *   folder has
 */
export async function isServedInSight(data: string, mark: string): Promise<boolean> {
  if (process.platform !== 'linux') return false;
  const file = await readFile(pidFile(data), 'utf8').catch(() => '');
  const path = file.split('\n')[1] || undefined; // a loss of power can cut the file off
  const pids = (await readdir('/proc')).filter(name => /^\d+$/.test(name));
  const serving = await Promise.all(pids.map(pid => isServing(pid, mark, path)));
  return serving.includes(true);
}

/**
 * @param path the path of the data folder by the name that its server uses: of a process of
 *   another login, nothing else can be read
 */
async function isServing(pid: string, mark: string, path: string | undefined): Promise<boolean> {
  const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  if (!/^(.*\/)?postgres(: .*)?$/.test(words[0] ?? '')) return false;

  return lstat(`${workingFolder(pid)}/${mark}`).then(
    () => true,
    ({ code }) =>
      (code === 'EACCES' || code === 'EPERM') && path !== undefined && words.includes(path),
  );
}

/** The number of the first process namespace, which contains all others (PROC_PID_INIT_INO). */
const firstNamespace = 'pid:[4026531836]';

/**
 * Returns true if /proc has all processes of the machine. The option `hidepid` of its mount
 * hides those of other logins, such as the first one.
 */
export async function seesAllProcesses(): Promise<boolean> {
  if (process.platform !== 'linux' || !(await canSignal())) return false;
  const [namespace, first] = await Promise.all([
    readlink('/proc/self/ns/pid').catch(() => ''),
    readFile('/proc/1/cmdline', 'utf8').catch(() => ''),
  ]);
  return namespace === firstNamespace && first !== '';
}

/**
 * Returns true if a number in /proc is that of the same process for `kill`. In a process
 * namespace that still has the /proc of another one, a signal would reach a stranger.
 */
export async function canSignal(): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  return (await readlink('/proc/self').catch(() => '')) === String(process.pid);
}
