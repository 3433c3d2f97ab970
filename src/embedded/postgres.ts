import type { ChildProcess } from 'node:child_process';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { OperatorError } from '../log/operator-error.ts';
import { createRunner } from './binaries.ts';
import { createCluster } from './cluster.ts';
import { joinServer, keepMembership } from './membership.ts';
import { findServer } from './pid-file.ts';
import { lastLogLine, launchServer } from './server-process.ts';
import { passwordFile, serverUrl } from './server-url.ts';

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
