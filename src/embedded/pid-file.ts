import { readFile, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** A server, as its pid file describes it. */
export interface RunningServer {
  readonly pid: number;
  readonly port: number;
  /** True once it accepts connections on its port. */
  readonly isReady: boolean;
}

/** PostgreSQL writes its pid into this file of the data folder, and removes the file when it stops. */
export const pidFile = (data: string): string => join(data, 'postmaster.pid');

/**
 * Returns the server that the pid file of a data folder describes; undefined without such a
 * file. The server may have been killed, and its number may belong to another process by now.
 */
export async function readPidFile(data: string): Promise<RunningServer | undefined> {
  const lines = (await readFile(pidFile(data), 'utf8').catch(() => '')).split('\n');
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  if (!pid) return undefined;

  // The file has the port before the server listens on it: another server may have that port.
  const isReady = ['ready', 'standby'].includes(lines[7]?.trim() ?? '');
  return { pid, port, isReady };
}

/** Returns the server on a data folder, unless it is in a container that hides it. */
export async function findServer(data: string): Promise<RunningServer | undefined> {
  const server = await readPidFile(data);
  return server && (await isServerOf(data, server.pid)) ? server : undefined;
}

/** Checks that the process is a server on this very folder: after a restart another process may have the number. */
export async function isServerOf(data: string, pid: number): Promise<boolean> {
  if (process.platform === 'linux') {
    // The working folder of a server is its data folder. Device and inode identify it under any name, also after a
    // rename.
    const [own, its] = await Promise.all([data, `/proc/${pid}/cwd`].map(path => stat(path).catch(() => undefined)));
    return own !== undefined && own.dev === its?.dev && own.ino === its.ino;
  }
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns true if a number in /proc is that of the same process for `kill`. In a process
 * namespace that still has the /proc of another one, a signal would reach a stranger.
 */
export async function canSignal(): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  return (await readlink('/proc/self').catch(() => '')) === String(process.pid);
}
