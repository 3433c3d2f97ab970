import type { ChildProcess } from 'node:child_process';
import { mkdir, open, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { OperatorError } from '../log/operator-error.ts';
import { connectionConfig } from '../postgres/connection.ts';
import { createRunner, postgresBinaries, type Runner, runBinary } from './binaries.ts';
import { createCluster, embeddedCluster, passwordFile, pathExists, serverUrl } from './cluster.ts';
import { findServer, isServerOf, pidFile, type RunningServer } from './pid-file.ts';

/**
 * A PostgreSQL server that comes with the project, for a machine without one: its data lies in a folder, and it
 * listens on a free port of the loopback. Several processes may use it at once (the service, the command line); the
 * last one to leave stops it.
 */
export interface EmbeddedPostgres {
  /** The URL of the superuser on the server's own database `postgres`. */
  readonly url: string;
  /** Leaves the server, and stops it if no other process uses it. */
  leave(): Promise<void>;
}

interface EmbeddedOptions {
  /** Further settings of the server, `name=value`. They have no effect on a server that runs already. */
  settings?: string[];
}

const startDeadlineMs = 30_000;
const pollMs = 15;
/** An advisory lock: two processes that start the server must not change its rights at the same time. */
const rightsLock = 727_100_002;

/**
 * Starts the server, or joins the one that runs on this folder already (also one that a killed process has left).
 * @throws with the last line of the server's log if it does not accept connections within 30 s
 */
export async function startEmbeddedPostgres(
  folder: string,
  { settings = [] }: EmbeddedOptions = {},
): Promise<EmbeddedPostgres> {
  const data = join(folder, 'postgres');
  await mkdir(folder, { recursive: true });
  const runner = await createRunner(data);
  await createCluster(data, runner);
  const password = await readFile(join(data, passwordFile), 'utf8');
  const deadline = Date.now() + startDeadlineMs;
  let launched: ChildProcess | undefined;
  while (Date.now() < deadline) {
    const server = await findServer(data);
    if (server) {
      const client = await joinServer(server, password);
      if (client && launched) await prepareServer(client);
      if (client) return { url: serverUrl(server.port, password), leave: keepMembership(client, data, password) };
    } else if (!launched || launched.exitCode !== null) {
      launched = await launchServer(data, folder, runner, settings);
    }
    await sleep(pollMs);
  }
  throw new OperatorError(`the embedded PostgreSQL did not start: ${await lastLogLine(folder)}`);
}

/**
 * Leaves the databases `postgres` and `template1` to the superuser. Discards the write-ahead log, which the server
 * would keep for ever otherwise, until an operator lets it be archived.
 */
async function prepareServer(client: pg.Client): Promise<void> {
  await client.query(
    `select pg_advisory_xact_lock(${rightsLock}); revoke all on database postgres, template1 from public`,
  );
  const { rows } = await client.query<{ archives: boolean }>(
    `select concat(current_setting('archive_command'), current_setting('archive_library')) <> '' as archives`,
  );
  if (rows[0]?.archives) return;
  await client.query(`alter system set archive_command = 'true'`);
  await client.query('select pg_reload_conf()');
}

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
async function lastLogLine(folder: string): Promise<string> {
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

/**
 * An advisory lock that each process that uses the server holds in shared mode. A process that can acquire it
 * exclusively is the last one.
 */
const usersLock = 727_100_001;
const rejoinMs = 200;

/**
 * Opens the connection that makes this process a user of the server. Returns undefined while the server starts or
 * stops.
 */
async function joinServer({ port }: RunningServer, password: string): Promise<pg.Client | undefined> {
  if (!port) return undefined;
  const client = new pg.Client(connectionConfig(serverUrl(port, password), 'embedded'));
  client.on('error', () => {}); // the running query fails, or 'end' follows
  try {
    await client.connect();
    await client.query('select pg_advisory_lock_shared($1)', [usersLock]);
    return client;
  } catch {
    client.end().catch(() => {});
    return undefined;
  }
}

/**
 * Keeps this process a user of the server: joins again when the connection was cut (a crash of the server, an
 * operator). Without that, the next process that leaves would consider itself the last one and stop the server.
 * @returns a function that leaves the server, and stops it if no other process uses it
 */
function keepMembership(first: pg.Client, data: string, password: string): () => Promise<void> {
  let client = first;
  let hasLeft = false;
  const rejoinOnEnd = (): void => void client.once('end', rejoin);
  const rejoin = async (): Promise<void> => {
    while (!hasLeft) {
      const server = await findServer(data).catch(() => undefined);
      const joined = server && (await joinServer(server, password));
      if (joined && hasLeft) await joined.end().catch(() => {});
      else if (joined) {
        client = joined;
        return rejoinOnEnd();
      }
      await sleep(rejoinMs, undefined, { ref: false });
    }
  };
  rejoinOnEnd();
  return async () => {
    hasLeft = true;
    try {
      await client.query('select pg_advisory_unlock_shared($1)', [usersLock]);
      const { rows } = await client.query<{ last: boolean }>('select pg_try_advisory_lock($1) as last', [usersLock]);
      if (rows[0]?.last) await stopServer(data);
    } catch {
      // The connection is lost: the server has stopped already.
    } finally {
      await client.end().catch(() => {});
    }
  };
}
