import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createRunner, postgresBinaries, runBinary } from '../../src/lib/embedded/binaries.ts';
import { createCluster, passwordFile } from '../../src/lib/embedded/cluster.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';

/**
 * A PostgreSQL server on a fixed port, which can crash and start again. It loses no commit when
 * it crashes.
 */
export interface FaultPostgres {
  readonly port: number;
  /** Superuser URL of the database `postgres`. */
  readonly url: string;
  start(): Promise<void>;
  /** Ends every session at once, without a checkpoint (immediate shutdown). */
  crash(): Promise<void>;
}

// Without fsync a crash of the machine loses commits, but one of the server does not.
const settings = [
  'listen_addresses=127.0.0.1',
  'unix_socket_directories=',
  'max_connections=120',
  'fsync=off',
  'max_wal_size=256MB',
  'timezone=UTC',
];

/** Creates a cluster in a folder, and starts its server. */
export async function startFaultPostgres(folder: string): Promise<FaultPostgres> {
  const data = join(folder, 'data');
  const runner = await createRunner(data);
  await createCluster(data, runner);
  const { postgres } = await postgresBinaries();

  const port = await freePort();
  const password = await readFile(join(data, passwordFile), 'utf8');
  const url = `postgresql://postgres:${password}@127.0.0.1:${port}/postgres`;
  const log = await open(join(folder, 'postgres.log'), 'a', 0o600);

  let child: ChildProcess | undefined;
  process.on('exit', () => child?.kill('SIGQUIT'));

  const server: FaultPostgres = {
    port,
    url,
    start: async () => {
      const flags = settings.flatMap(setting => ['-c', setting]);
      child = runBinary(postgres, ['-D', data, '-p', String(port), ...flags], runner, log.fd);
      await eventually(() => withConnection(url, client => client.query('select 1')), 60_000);
    },
    crash: async () => {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill('SIGQUIT');
      await ended;
    },
  };

  await server.start();
  return server;
}
