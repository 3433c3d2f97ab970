import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { lstat, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { createRunner, postgresBinaries, type Runner } from '../../../embedded/binaries.ts';
import { OperatorError } from '../../../operator-error.ts';
import { connectionConfig } from '../../../postgres/connection.ts';
import { canonicalTextSettings } from '../../table-checksums.ts';
import type { BaseBackup } from './base-folder.ts';
import { type RecoveryOptions, writeSettings } from './scratch-settings.ts';

const pollMs = 25;

/** A scratch server that has recovered a base backup to a moment. */
export interface ScratchServer {
  /** Runs `work` on a read-only connection to one of its databases. */
  connect<T>(database: string, work: (client: pg.Client) => Promise<T>): Promise<T>;
  /** Returns what the server has logged. */
  log(): Promise<string>;
}

/**
 * Recovers a base backup to a moment with a server of its own, which listens on a socket in a private folder only, and
 * runs `work` on it. The server ends with `work` or with this process, however that ends, and its folder is removed.
 * @throws {OperatorError} when the recovery fails
 */
export async function withRecoveredServer<T>(
  options: RecoveryOptions,
  work: (server: ScratchServer) => Promise<T>,
): Promise<T> {
  const { base, folder } = options;
  const program = await findProgram(base);
  const data = join(folder, 'data');
  // The path of a socket has at most 107 bytes.
  const sockets = await mkdtemp(join(tmpdir(), 'backoffice-'));
  const runner = await runnerOf(base.dataDirectory);
  await writeSettings(options, sockets);
  await giveTo(runner, [sockets, folder]);
  const child = await launch(program, data, folder, sockets, runner);
  const connect: ScratchServer['connect'] = (database, run) => withScratchConnection(sockets, base, database, run);
  try {
    await waitUntilRecovered(child, folder, connect, base);
    return await work({ connect, log: () => readFile(join(folder, 'postgres.log'), 'utf8') });
  } finally {
    child.stdin?.end(); // the watching shell stops the server and removes the folders
    if (child.exitCode === null && child.signalCode === null)
      await new Promise(resolve => child.once('close', resolve));
    await rm(folder, { recursive: true, force: true });
    await rm(sockets, { recursive: true, force: true });
  }
}

/** Returns a PostgreSQL program of the major version of the base backup. */
async function findProgram({ version, program }: BaseBackup): Promise<string> {
  const major = Math.floor(version / 10_000);
  const embedded = await postgresBinaries().catch(() => undefined);
  for (const path of [embedded?.postgres, program]) {
    const output = path && (await promisify(execFile)(path, ['--version']).catch(() => undefined));
    if (path && Number(/ (\d+)[.\w]/.exec(output ? output.stdout : '')?.[1]) === major) return path;
  }
  throw new OperatorError(`There is no PostgreSQL ${major} on this machine: run this command on that of the server`);
}

/** The login that owns the files of the server also owns its archive, which the scratch server reads. */
async function runnerOf(dataDirectory: string): Promise<Runner> {
  const owner = await lstat(dataDirectory).catch(() => undefined);
  return process.getuid?.() === 0 && owner?.uid ? { command: [], uid: owner.uid } : createRunner(dataDirectory);
}

/** Gives the folders to the login that runs the server, if that is another one. */
async function giveTo({ uid }: Runner, folders: string[]): Promise<void> {
  if (uid === undefined) return;
  for (const folder of folders) await promisify(execFile)('chown', ['-R', `${uid}:${uid}`, folder]);
}

/**
 * A shell that starts the server, and ends it when the standard input ends: on purpose, or because the process that
 * holds the other end is gone. Then it removes the folders. The arguments: two folders, and the command of the server.
 */
const watch = `
  folder=$1 sockets=$2; shift 2
  exec 3<&0
  "$@" </dev/null 3<&- & server=$!
  ( read _ <&3; kill -QUIT $server 2>/dev/null ) & 
  wait $server; echo $? > "$folder/ended"
  read _ <&3
  rm -rf -- "$folder" "$sockets"`;

async function launch(
  program: string,
  data: string,
  folder: string,
  sockets: string,
  { command, uid }: Runner,
): Promise<ChildProcess> {
  const log = await open(join(folder, 'postgres.log'), 'a', 0o600);
  const server = [program, '-D', data, '-c', `config_file=${join(folder, 'postgresql.conf')}`];
  const [first = 'sh', ...rest] = [...command, 'sh', '-c', watch, 'sh', folder, sockets, ...server];
  const child = spawn(first, rest, {
    stdio: ['pipe', log.fd, log.fd],
    detached: true,
    ...(uid === undefined ? {} : { uid, gid: uid }),
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' },
  });
  child.on('error', () => {}); // the server does not come up, and the wait below reports its log
  child.stdin?.on('error', () => {});
  await log.close();
  return child;
}

async function waitUntilRecovered(
  child: ChildProcess,
  folder: string,
  connect: ScratchServer['connect'],
  base: BaseBackup,
): Promise<void> {
  for (;;) {
    const hasEnded = (await readFile(join(folder, 'ended'), 'utf8').catch(() => undefined)) !== undefined;
    if (hasEnded || child.exitCode !== null) throw await explainFailure(folder, base);
    try {
      return await connect('template1', async client => void (await client.query('select')));
    } catch {
      await sleep(pollMs); // 57P03 until the recovery has ended
    }
  }
}

async function explainFailure(folder: string, base: BaseBackup): Promise<OperatorError> {
  const log = await readFile(join(folder, 'postgres.log'), 'utf8').catch(() => '');
  const last = /last completed transaction was at log time (.*)/.exec(log)?.[1];
  if (log.includes('recovery ended before configured recovery target was reached'))
    return new OperatorError(
      `The archived write-ahead log ends before that moment: its last transaction is of ${last ?? base.finishedAt}. ` +
        'Restore to that moment, or to an earlier one',
    );
  const reason = log.split('\n').findLast(line => /(FATAL|PANIC):/.test(line));
  return new OperatorError(
    `The scratch server could not recover base backup ${base.id}: ${reason?.trim() ?? 'no log'}`,
  );
}

async function withScratchConnection<T>(
  sockets: string,
  base: BaseBackup,
  database: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  // Outside of the connection budget: nobody else uses the server.
  const url = `postgresql:///${encodeURIComponent(database)}?host=${encodeURIComponent(sockets)}`;
  const login = `${url}&user=${encodeURIComponent(base.superuser)}`;
  const client = new pg.Client(connectionConfig(login, 'operator', canonicalTextSettings));
  client.on('error', () => {}); // the running query rejects
  try {
    await client.connect();
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}
