import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { Redis } from 'ioredis';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';

/** True if `redis-server` is installed. */
export const redisInstalled = spawnSync('redis-server', ['--version']).status === 0;

/** A Redis server for one test, on a port that stays the same over restarts. */
export interface TestRedis {
  readonly url: string;
  /** The test's own client. */
  readonly admin: Redis;
  start(): Promise<void>;
  /** Kills the server at once (SIGKILL), as a power failure would. Its data is lost. */
  kill(): Promise<void>;
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void;
  /** Returns the number of connections of the service. */
  connections(): Promise<number>;
  close(): Promise<void>;
}

/** @param options of the command line of the server, beside those of every test */
export async function startRedis(options: readonly string[] = []): Promise<TestRedis> {
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  const admin = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => 10,
    connectTimeout: 1_000,
  });
  admin.on('error', () => {}); // tests kill the server on purpose
  let server: ChildProcess | undefined;

  const redis: TestRedis = {
    url,
    admin,
    start: async () => {
      // A title of the process would overwrite the environment, by which guardian.ts finds the
      // server.
      const title = ['--set-proc-title', 'no'];
      const common = [
        '--port',
        String(port),
        '--bind',
        '127.0.0.1',
        '--save',
        '',
        '--appendonly',
        'no',
      ];
      const settings = [...common, ...title, ...options];
      server = spawn('redis-server', settings, { stdio: 'ignore' });
      if (admin.status === 'wait') await admin.connect().catch(() => {});
      await eventually(async () => (await admin.ping()) === 'PONG');
    },
    kill: async () => {
      if (!server || server.exitCode !== null || server.signalCode !== null) return;
      const ended = once(server, 'exit');
      server.kill('SIGKILL');
      await ended;
    },
    signal: signal => void server?.kill(signal),
    connections: async () => {
      const list = String(await admin.client('LIST'));
      return list.split('\n').filter(line => line.includes(' name=rate-limits ')).length;
    },
    close: async () => {
      admin.disconnect();
      await redis.kill();
    },
  };
  await redis.start();
  return redis;
}
