import { readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** A running server, as its pid file describes it. `port` is 0 until the server has chosen to listen. */
export interface RunningServer {
  pid: number;
  port: number;
}

/** PostgreSQL writes its pid into this file of the data folder, and removes the file when it stops. */
export const pidFile = (data: string): string => join(data, 'postmaster.pid');

/**
 * Returns the server that runs on a data folder. Removes the pid file that a crash of the server, the machine or the
 * container has left. `pg_ctl status` cannot detect that: it assumes that any process with the number in the file is
 * the server, and PostgreSQL itself then refuses to start ("lock file already exists").
 */
export async function findServer(data: string): Promise<RunningServer | undefined> {
  const path = pidFile(data);
  const lines = (await readFile(path, 'utf8').catch(() => '')).split('\n');
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  if (!pid) return undefined;
  if (!(await isServerOf(data, pid))) {
    await rm(path, { force: true });
    return undefined;
  }
  return { pid, port };
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
