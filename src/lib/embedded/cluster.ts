import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, lstat, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { formatPostgresUrl, parsePostgresUrl } from '../config/postgres-url.ts';
import { OperatorError } from '../log/operator-error.ts';
import { postgresBinaries, type Runner, runBinary } from './binaries.ts';
import { failureLine } from './failure-line.ts';
import { findRunningPostgres } from './pid-file.ts';

/**
 * Creates the data folder of the server with `initdb`, unless it exists. It is created under a
 * temporary name and renamed, so a folder with the final name is complete, whenever this
 * process is killed.
 */
export async function createCluster(data: string, runner: Runner): Promise<void> {
  if (await pathExists(join(data, 'PG_VERSION'))) return;
  const { initdb } = await postgresBinaries();
  const temporary = `${data}.${randomBytes(8).toString('hex')}`;
  const password = randomBytes(24).toString('base64url');

  await mkdir(temporary, { mode: 0o700 });
  try {
    const pwfile = `${temporary}.password`;
    await writeFile(pwfile, password, { mode: 0o600 });
    if (runner.uid !== undefined) {
      await Promise.all(
        [temporary, pwfile].map(path => chown(path, runner.uid ?? 0, runner.uid ?? 0)),
      );
    }

    const args = [
      '-D',
      temporary,
      '-U',
      superuser,
      '-A',
      'scram-sha-256',
      `--pwfile=${pwfile}`,
      '-E',
      'UTF8',
    ];
    const locale = [
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--locale=C',
      '--no-instructions',
      '--no-sync',
    ];

    await waitForInitdb(runBinary(initdb, [...args, ...locale], runner, 'pipe'));

    await rm(pwfile);
    await writeFile(join(temporary, passwordFile), password, { mode: 0o600 });
    await rename(temporary, data);
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    await rm(`${temporary}.password`, { force: true });
    // If another process was faster, its cluster is used.
    if (!(await pathExists(join(data, 'PG_VERSION')))) throw error;
  }
}

/**
 * @throws {OperatorError} with the line of the output that has the reason, unless the exit code
 *   is 0
 */
async function waitForInitdb(child: ChildProcess): Promise<void> {
  let output = '';
  child.stdout?.on('data', chunk => (output += chunk));
  child.stderr?.on('data', chunk => (output += chunk));
  const code = await new Promise<number | null>((resolve, reject) =>
    child.once('error', reject).once('close', resolve),
  );
  if (code !== 0) {
    throw new OperatorError(
      `the embedded PostgreSQL cannot create its data: ${failureLine(output)}`,
    );
  }
}

export async function pathExists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

// Separate from the module that starts a server: completion only needs the URL, and the shell
// waits for it.

/** The role that owns the cluster. */
const superuser = 'postgres';
/** The `cluster_name` of an embedded server, which distinguishes it from others. */
export const embeddedCluster = 'embedded by backoffice';
/** The file in the data folder that holds the password of the superuser. */
export const passwordFile = 'superuser.password';

/** Returns the URL of the superuser on the server's own database `postgres`. */
export function serverUrl(port: number, password: string): string {
  return `postgresql://${superuser}:${password}@127.0.0.1:${port}/postgres`;
}

/**
 * Returns the URL of the control database on the server that runs on this folder.
 * @throws when none runs
 */
export async function runningEmbeddedUrl(folder: string): Promise<string> {
  const data = join(folder, 'postgres');
  const server = await findRunningPostgres(data).catch(() => undefined);
  if (!server) {
    throw new OperatorError(
      'no embedded PostgreSQL is running: start the service, or set DATABASE_URL',
    );
  }
  return embeddedControlUrl(
    serverUrl(server.port, await readFile(join(data, passwordFile), 'utf8')),
  );
}

/** Returns the URL of the control database on an embedded server. */
export function embeddedControlUrl(url: string): string {
  return formatPostgresUrl({ ...parsePostgresUrl(url), database: 'backoffice' });
}
