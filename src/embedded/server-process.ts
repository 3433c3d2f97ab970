import type { ChildProcess } from 'node:child_process';
import { open, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { postgresBinaries, type Runner, runBinary } from './binaries.ts';
import { pathExists } from './cluster.ts';
import { findServer, isServerOf, pidFile } from './pid-file.ts';
import { embeddedCluster } from './server-url.ts';

const pollMs = 15;
const stopDeadlineMs = 30_000;

const defaultSettings = [
  `cluster_name=${embeddedCluster}`,
  'listen_addresses=127.0.0.1',
  'unix_socket_directories=',
  'max_connections=200',
  'timezone=UTC',
  'log_timezone=UTC',
  'log_parameter_max_length=0', // values of slow statements may be secrets, such as password hashes
  'archive_mode=on', // only a restart changes it; without an archive_command nothing is archived
];

const logFile = (folder: string): string => join(folder, 'postgres.log');

/**
 * Starts a server on a data folder and a free port of the loopback; returns before the server accepts connections. The
 * server outlives this process and writes to `postgres.log` in `folder`.
 * @param settings further settings of the server, `name=value`
 */
export async function launchServer(
  data: string,
  folder: string,
  runner: Runner,
  settings: string[],
): Promise<ChildProcess> {
  const { postgres } = await postgresBinaries();
  const log = await open(logFile(folder), 'a', 0o600);
  const flags = [...defaultSettings, ...settings].flatMap(setting => ['-c', setting]);
  const child = runBinary(postgres, ['-D', data, '-p', String(await freePort()), ...flags], runner, log.fd);
  child.on('error', () => {}); // without the program no pid file appears, and the start fails at its deadline
  child.unref();
  await log.close();
  return child;
}

/** Stops the server of a data folder (fast shutdown: open sessions are ended), and waits at most 30 s for its end. */
export async function stopServer(data: string): Promise<void> {
  const server = await findServer(data);
  if (!server) return;
  process.kill(server.pid, 'SIGINT');
  const deadline = Date.now() + stopDeadlineMs;
  while (Date.now() < deadline && (await pathExists(pidFile(data))) && (await isServerOf(data, server.pid)))
    await sleep(pollMs);
}

/** Returns the last line of the server's log, which names the reason if the server did not start. */
export async function lastLogLine(folder: string): Promise<string> {
  const log = await readFile(logFile(folder), 'utf8').catch(() => '');
  return log.trim().split('\n').at(-1) ?? 'no log';
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise(resolve => server.close(resolve));
  return typeof address === 'object' && address ? address.port : 0;
}
