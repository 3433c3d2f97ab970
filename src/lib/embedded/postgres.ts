import type { ChildProcess } from 'node:child_process';
import { mkdir, open, readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Logger } from 'pino';
import { describeError } from '../log/describe-error.ts';
import { OperatorError } from '../log/operator-error.ts';
import { connectionConfig } from '../postgres/connection.ts';
import { sqlState } from '../postgres/database-error.ts';
import { SessionClient } from '../postgres/session-client.ts';
import {
  createRunner,
  postgresBinaries,
  type Runner,
  requireOwnVersion,
  runBinary,
} from './binaries.ts';
import { createCluster, embeddedCluster, passwordFile, pathExists, serverUrl } from './cluster.ts';
import { failureLine } from './failure-line.ts';
import {
  canSignal,
  findRunningPostgres,
  isServerOf,
  pidFile,
  type RunningPostgres,
  readPidFile,
} from './pid-file.ts';
import { claimServer, isClaimed, requireOwnFileSystem } from './server-claim.ts';

/**
 * A PostgreSQL server that comes with the project, for a machine without one: its data lies in
 * a folder, and it listens on a free port of the loopback. Several processes may use it at once
 * (the service, the command line); the last one to leave stops it.
 */
export interface EmbeddedPostgres {
  /** The URL of the superuser on the server's own database `postgres`. */
  readonly url: string;
  /** Leaves the server, and stops it if no other process uses it. */
  leave(): Promise<void>;
}

interface EmbeddedOptions {
  /**
   * Further settings of the server, `name=value`. They have no effect on a server that runs
   * already.
   */
  settings?: string[];
  /** The log. With a log, this process starts a killed server again, and logs that. */
  log?: Logger | undefined;
}

/**
 * Starts the server, or joins the one that runs on this folder already (also one that a killed
 * process has left).
 * @throws {OperatorError} with the reason in the server's log if it does not accept connections
 *   within 30 s, or if it runs where this process cannot reach it
 */
export async function startEmbeddedPostgres(
  folder: string,
  { settings = [], log }: EmbeddedOptions = {},
): Promise<EmbeddedPostgres> {
  const data = join(folder, 'postgres');
  await mkdir(folder, { recursive: true });
  await requireOwnFileSystem(folder);
  const runner = await createRunner(data);
  await createCluster(data, runner);
  const password = await readFile(join(data, passwordFile), 'utf8');

  const server = new EmbeddedServer({ folder, data, runner, settings, password, log });
  await server.start();
  return server;
}

interface ServerOptions {
  readonly folder: string;
  readonly data: string;
  readonly runner: Runner;
  readonly settings: string[];
  readonly password: string;
  readonly log: Logger | undefined;
}

/** A connection that makes this process a user of the server. */
interface Membership {
  readonly client: pg.Client;
  readonly port: number;
}

const startDeadlineMs = 30_000;
const pollMs = 15;
/**
 * Maximum launches of a start: another program may take the port of one before PostgreSQL does.
 */
const maxLaunches = 3;
/** The time after which a ready server that still refuses connections is given up. */
const refusedMs = 5_000;
const rejoinMs = 200;
/** Pause between two launches after a loss; doubles until a server has run for `steadyMs`. */
const [minPauseMs, maxPauseMs, steadyMs] = [1_000, 60_000, 60_000];

/** The use of the server of a data folder by a process, from `start` to `leave`. */
class EmbeddedServer implements EmbeddedPostgres {
  readonly #options: ServerOptions;
  #client: pg.Client | undefined;
  #port = 0;
  #joinedAt = 0;
  #nextLaunchAt = 0;
  #pauseMs = minPauseMs;
  #hasLeft = false;
  #recovery: Promise<void> | undefined;

  constructor(options: ServerOptions) {
    this.#options = options;
  }

  get url(): string {
    return serverUrl(this.#port, this.#options.password);
  }

  /** Joins the server that runs, or starts one. */
  async start(): Promise<void> {
    this.#hold(await this.#joinOrLaunch({ isFirst: true }));
  }

  readonly leave = async (): Promise<void> => {
    this.#hasLeft = true;
    await this.#recovery;
    const client = this.#client;
    if (!client) return;

    try {
      await client.query('select pg_advisory_unlock_shared($1)', [usersLock]);
      const { rows } = await client.query<{ last: boolean }>(
        'select pg_try_advisory_lock($1) as last',
        [usersLock],
      );
      if (rows[0]?.last) await stopServer(this.#options.data);
    } catch {
      // The connection is lost: the server has stopped already.
    } finally {
      await client.end().catch(() => {});
    }
  };

  #hold({ client, port }: Membership): void {
    this.#client = client;
    this.#port = port;
    this.#joinedAt = performance.now();
    client.once('end', () => {
      this.#client = undefined;
      this.#recovery = this.#recover();
    });
  }

  /**
   * Joins again when the connection was cut, by a crash of the server or an operator. Otherwise
   * the next process that leaves would consider itself the last one and stop the server. A
   * process with a log starts a server that was killed again, on its port, which all of its
   * URLs name.
   */
  async #recover(): Promise<void> {
    const { log } = this.#options;
    if (performance.now() - this.#joinedAt > steadyMs) this.#pauseMs = minPauseMs;

    while (!this.#hasLeft) {
      try {
        this.#hold(await this.#joinOrLaunch({ isFirst: false }));
        log?.warn({ event: 'embedded_postgres_back' }, 'the embedded PostgreSQL serves again');
        return;
      } catch (error) {
        if (this.#hasLeft) return;
        log?.error(
          { event: 'embedded_postgres_down', err: describeError(error) },
          'the embedded PostgreSQL does not run, and is started again after a pause',
        );
      }
    }
  }

  /**
   * @param isFirst false after a loss: the port stays the same then, and the wait does not keep
   *   the process running
   * @throws {OperatorError} with the line of the server's log that has the reason why it cannot
   *   be used
   */
  async #joinOrLaunch({ isFirst }: { isFirst: boolean }): Promise<Membership> {
    const { folder, data, runner, settings, password, log } = this.#options;
    const deadline =
      Math.max(performance.now(), isFirst ? 0 : this.#nextLaunchAt) + startDeadlineMs;
    const logLength = await lengthOf(logFile(folder));
    let launched: ChildProcess | undefined;
    let launches = 0;
    let refusedAt: number | undefined;

    try {
      while (performance.now() < deadline && !this.#hasLeft) {
        const server = await readPidFile(data);
        const runs = (server && (await isServerOf(data, server.pid))) || (await isClaimed(folder));

        if (runs && server?.isReady && (isFirst || server.port === this.#port)) {
          const { client, refusal } = await joinServer(server, password);
          if (client) {
            if (launched) await prepareServer(client);
            return { client, port: server.port };
          }

          refusedAt = refusal === 'busy' ? undefined : (refusedAt ?? performance.now());
          const isRefused = refusedAt !== undefined && performance.now() - refusedAt > refusedMs;
          if (isFirst && (isRefused || (launched && refusal === 'no_loopback'))) {
            throw await this.#refused(launched ? refusal : 'elsewhere', server.port, logLength);
          }
        } else if (!runs && launches === (isFirst ? maxLaunches : 1)) {
          break;
        } else if (!runs && (isFirst || (log && performance.now() >= this.#nextLaunchAt))) {
          const port = isFirst ? await freePort(server?.port) : this.#port;
          const child = await launchServer(data, folder, runner, settings, port);
          if (child) {
            launched = child;
            launches++;
            this.#delayNextLaunch();
          }
        }

        const pauseMs = isFirst ? pollMs * (1 + Math.random()) : rejoinMs;
        await sleep(pauseMs, undefined, { ref: isFirst });
      }

      throw new OperatorError(
        `the embedded PostgreSQL did not start: ${await reasonIn(logFile(folder), logLength)}`,
      );
    } catch (error) {
      launched?.kill('SIGINT'); // nobody uses it
      throw error;
    }
  }

  /** @param logLength the length of the server's log before this start */
  async #refused(refusal: Refusal, port: number, logLength: number): Promise<OperatorError> {
    const { data, folder } = this.#options;
    switch (refusal) {
      case 'no_loopback':
        return new OperatorError(
          'the embedded PostgreSQL cannot be reached on 127.0.0.1, because the loopback interface is down: run ' +
            'ip link set lo up, or set DATABASE_URL and MASTER_KEY',
        );
      case 'elsewhere':
        return new OperatorError(
          `A PostgreSQL already uses ${data}, and does not answer here on port ${port}: it was started in another ` +
            'container or namespace, or is about to end. Run this where it was started, or stop it first',
        );
      default:
        return new OperatorError(
          `the embedded PostgreSQL runs and refuses connections: ${await reasonIn(logFile(folder), logLength)}`,
        );
    }
  }

  #delayNextLaunch(): void {
    this.#nextLaunchAt = performance.now() + this.#pauseMs;
    this.#pauseMs = Math.min(2 * this.#pauseMs, maxPauseMs);
  }
}

/**
 * An advisory lock, so that two processes that start the server do not change its rights at the
 * same time.
 */
const rightsLock = 727_100_002;

/**
 * Leaves the databases `postgres` and `template1` to the superuser. Discards the write-ahead
 * log, which the server would keep for ever otherwise, until an operator lets it be archived.
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
 * Starts a server on a data folder, unless another process has one; returns before the server
 * accepts connections. The server outlives this process and writes to `postgres.log` in
 * `folder`.
 * @param settings further settings of the server, `name=value`
 * @returns undefined when a server runs on the folder, or another process starts one
 * @throws {OperatorError} when the data are of another major version
 */
export async function launchServer(
  data: string,
  folder: string,
  runner: Runner,
  settings: string[],
  port?: number,
): Promise<ChildProcess | undefined> {
  const { postgres } = await postgresBinaries();
  await requireOwnVersion(data, postgres);
  const flags = [...defaultSettings, ...settings].flatMap(setting => ['-c', setting]);
  const args = ['-D', data, '-p', String(port ?? (await freePort())), ...flags];
  const claim = await claimServer(folder, data);
  if (!claim) return undefined;

  const log = await open(logFile(folder), 'a', 0o600);
  const child = runBinary(postgres, args, runner, log.fd, claim.descriptor);
  child.on('error', () => {}); // without the program no pid file appears, and the start fails
  child.unref();
  claim.release(); // PostgreSQL has the claim now
  await log.close();
  return child;
}

/**
 * Stops the server of a data folder (fast shutdown: open sessions are ended), and waits at most
 * 30 s for its end. A server that this process cannot see goes on, until a process that sees it
 * leaves.
 */
export async function stopServer(data: string): Promise<void> {
  const server = await findRunningPostgres(data);
  if (!server || !(await canSignal())) return;
  process.kill(server.pid, 'SIGINT');
  const deadline = performance.now() + stopDeadlineMs;
  while (
    performance.now() < deadline &&
    (await pathExists(pidFile(data))) &&
    (await isServerOf(data, server.pid))
  ) {
    await sleep(pollMs);
  }
}

async function lengthOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

/**
 * Returns the line of the server's log that says why it cannot be used.
 * @param from where to begin
 */
async function reasonIn(path: string, from: number): Promise<string> {
  const log = await readFile(path).catch(() => Buffer.alloc(0));
  return failureLine(log.subarray(from).toString()) || 'its log has no new line';
}

/**
 * Returns a port that no program uses.
 * @param preferred is returned if no program uses it
 */
async function freePort(preferred = 0): Promise<number> {
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) =>
      server.once('error', reject).listen(preferred, '127.0.0.1', resolve),
    );
  } catch (error) {
    if (preferred === 0) throw error;
    return freePort();
  }

  const address = server.address();
  await new Promise(resolve => server.close(resolve));

  return typeof address === 'object' && address ? address.port : 0;
}

/**
 * An advisory lock that each process that uses the server holds in shared mode. A process that
 * can acquire it exclusively is the last one.
 */
const usersLock = 727_100_001;

/**
 * The reason why a server cannot be joined. `elsewhere`: it is in another network namespace, in
 * which another server may have its port, with another password. `busy`: it starts or ends.
 */
type Refusal = 'no_loopback' | 'elsewhere' | 'busy' | 'broken';

const refusals: Readonly<Record<string, Refusal>> = {
  ENETUNREACH: 'no_loopback',
  EHOSTUNREACH: 'no_loopback',
  EADDRNOTAVAIL: 'no_loopback',
  ECONNREFUSED: 'elsewhere',
  ETIMEDOUT: 'elsewhere',
  '28P01': 'elsewhere',
  '57P01': 'busy',
  '57P03': 'busy',
};

type Joined = { client: pg.Client; refusal?: never } | { client?: never; refusal: Refusal };

/** Opens the connection that makes this process a user of the server. */
async function joinServer({ port }: RunningPostgres, password: string): Promise<Joined> {
  const client = new SessionClient(connectionConfig(serverUrl(port, password), 'embedded'));
  client.on('error', () => {}); // the running query fails, or 'end' follows
  try {
    await client.connect();
    await client.query('select pg_advisory_lock_shared($1)', [usersLock]);
    return { client };
  } catch (error) {
    client.end().catch(() => {});
    return { refusal: refusals[sqlState(error) ?? ''] ?? 'broken' };
  }
}
