import type { ChildProcess } from 'node:child_process';
import { mkdir, open, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { connectionConfig } from '../postgres/connection.ts';
import {
  binaries,
  createCluster,
  createRunner,
  exists,
  passwordFile,
  type Runner,
  runBinary,
  superuser,
} from './cluster.ts';

/**
 * A PostgreSQL server of the project's own, for a machine that has none: its data under a folder, on a free port of the
 * loopback. Several processes may use it at once (the service, the command line); the last to leave stops it.
 */
export interface EmbeddedPostgres {
  /** Superuser, on the server's own database `postgres`. */
  readonly url: string;
  /** Leaves the server, and stops it when nobody else uses it. */
  leave(): Promise<void>;
}

interface EmbeddedOptions {
  /** More settings of the server, `name=value`. */
  settings?: string[];
}

const startDeadlineMs = 30_000;
const pollMs = 15;
const rejoinMs = 200;
/** Held, shared, by each process that uses the server; who can take it alone is the last. */
const usersLock = 727_100_001;
/** Two that start the server at once must not change its rights at once. */
const rightsLock = 727_100_002;

/** Starts the server, or joins the one that runs already on this folder (also one that a crashed process left behind). */
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
  let started: ChildProcess | undefined;
  while (Date.now() < deadline) {
    const server = await readPidFile(data);
    if (server) {
      const client = await joinServer(server.port, password);
      // Nobody but the superuser has business there.
      if (client && started) {
        await client.query(
          `select pg_advisory_xact_lock(${rightsLock}); revoke all on database postgres, template1 from public`,
        );
      }
      if (client) return membership(client, data, urlOf(server.port, password), password);
    } else if (!started || started.exitCode !== null) {
      started = await launch(data, folder, runner, settings);
    }
    await sleep(pollMs);
  }
  throw new Error(`the embedded PostgreSQL did not start: ${await lastLogLine(folder)}`);
}

/** The URL of the control database on the server that runs on this folder. @throws when none runs */
export async function runningEmbeddedUrl(folder: string): Promise<string> {
  const data = join(folder, 'postgres');
  const server = await readPidFile(data).catch(() => undefined);
  if (!server) throw new Error('no embedded PostgreSQL is running: start the service, or set DATABASE_URL');
  return embeddedControlUrl(urlOf(server.port, await readFile(join(data, passwordFile), 'utf8')));
}

/** The control database on an embedded server. */
export function embeddedControlUrl(serverUrl: string): string {
  const url = new URL(serverUrl);
  url.pathname = '/backoffice';
  return url.href;
}

function urlOf(port: number, password: string): string {
  return `postgresql://${superuser}:${password}@127.0.0.1:${port}/postgres`;
}

async function launch(data: string, folder: string, runner: Runner, settings: string[]): Promise<ChildProcess> {
  const { postgres } = await binaries();
  const log = await open(join(folder, 'postgres.log'), 'a', 0o600);
  const defaults = [
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    'max_connections=200',
    'timezone=UTC',
    'log_timezone=UTC',
  ];
  const flags = [...defaults, ...settings].flatMap(setting => ['-c', setting]);
  const child = runBinary(postgres, ['-D', data, '-p', String(await freePort()), ...flags], runner, log.fd);
  child.on('error', () => {});
  child.unref();
  await log.close();
  return child;
}

/**
 * The server that holds the data folder. A pid file whose process is not a PostgreSQL any more (a crash, a restart of the
 * machine or container) is removed.
 */
async function readPidFile(data: string): Promise<{ pid: number; port: number } | undefined> {
  const path = join(data, 'postmaster.pid');
  const lines = (await readFile(path, 'utf8').catch(() => '')).split('\n');
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  if (!pid) return undefined;
  if (!(await isServerOf(data, pid))) {
    await rm(path, { force: true });
    return undefined;
  }
  return { pid, port };
}

/** Whether the process is a server on this very folder; another process may have the number by now. */
async function isServerOf(data: string, pid: number): Promise<boolean> {
  if (process.platform === 'linux') {
    // A server works in its folder, by whatever name it is reached, and also when it was renamed meanwhile.
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

/** A connection that counts as a user of the server; undefined while the server starts or stops. */
async function joinServer(port: number, password: string): Promise<pg.Client | undefined> {
  if (!port) return undefined;
  const client = new pg.Client(connectionConfig(urlOf(port, password), 'embedded'));
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select pg_advisory_lock_shared($1)', [usersLock]);
    return client;
  } catch {
    client.end().catch(() => {});
    return undefined;
  }
}

/** Joins again when the connection was cut (a crash of the server, an operator), or another one's leaving would be the end. */
function membership(first: pg.Client, data: string, url: string, password: string): EmbeddedPostgres {
  let client = first;
  let left = false;
  const watch = (): void => void client.once('end', rejoin);
  const rejoin = async (): Promise<void> => {
    while (!left) {
      const server = await readPidFile(data).catch(() => undefined);
      const joined = server && (await joinServer(server.port, password));
      if (joined && left) await joined.end().catch(() => {});
      else if (joined) {
        client = joined;
        return watch();
      }
      await sleep(rejoinMs, undefined, { ref: false });
    }
  };
  watch();
  return {
    url,
    leave: async () => {
      left = true;
      try {
        await client.query('select pg_advisory_unlock_shared($1)', [usersLock]);
        const { rows } = await client.query<{ alone: boolean }>('select pg_try_advisory_lock($1) as alone', [
          usersLock,
        ]);
        if (rows[0]?.alone) await stop(data);
      } catch {
        // The server is gone already.
      } finally {
        await client.end().catch(() => {});
      }
    },
  };
}

async function stop(data: string): Promise<void> {
  const server = await readPidFile(data);
  if (!server) return;
  process.kill(server.pid, 'SIGINT'); // fast shutdown: open sessions are ended
  const deadline = Date.now() + startDeadlineMs;
  while (Date.now() < deadline && (await exists(join(data, 'postmaster.pid'))) && (await isServerOf(data, server.pid)))
    await sleep(pollMs);
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise(resolve => server.close(resolve));
  return typeof address === 'object' && address ? address.port : 0;
}

async function lastLogLine(folder: string): Promise<string> {
  const log = await readFile(join(folder, 'postgres.log'), 'utf8').catch(() => '');
  return log.trim().split('\n').at(-1) ?? 'no log';
}
