import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { Redis } from 'ioredis';
import { eventually } from './eventually.ts';

/** Whether there is a redis-server to test on. */
export const redisInstalled = spawnSync('redis-server', ['--version']).status === 0;

/** A Redis of a test's own, on a port that it keeps over restarts. */
export interface TestRedis {
  readonly url: string;
  /** As its operator. */
  readonly admin: Redis;
  start(): Promise<void>;
  /** At once, as if its machine had been switched off. What it knew is lost. */
  kill(): Promise<void>;
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void;
  /** How many connections the service holds. */
  connections(): Promise<number>;
  close(): Promise<void>;
}

export async function startRedis(): Promise<TestRedis> {
  const port = await freePort();
  const url = `redis://127.0.0.1:${port}`;
  const admin = new Redis(url, { lazyConnect: true, retryStrategy: () => 10, connectTimeout: 1_000 });
  admin.on('error', () => {}); // it is killed on purpose
  let server: ChildProcess | undefined;

  const redis: TestRedis = {
    url,
    admin,
    start: async () => {
      const settings = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
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

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
