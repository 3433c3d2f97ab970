import { freePort } from '../test/support/free-port.ts';
import { progress } from './bench-progress.ts';
import type { Children } from './children.ts';

/** A Redis server of a bench. */
export interface BenchRedis {
  readonly url: string;
  readonly pid: number;
}

/**
 * Starts a Redis server that stores nothing on disk.
 * @returns undefined if redis-server is not installed
 */
export async function startRedis(
  children: Children,
  folder: string,
): Promise<BenchRedis | undefined> {
  const port = await freePort();
  const args = [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
  ];
  const child = children.start('redis-server', 'redis-server', args);

  try {
    await child.waitForOutput(/Ready to accept connections/);
  } catch (error) {
    if (!/ENOENT/.test(child.recentOutput())) throw error;
    progress('redis-server is not in PATH: requests are counted in memory');
    return undefined;
  }

  return { url: `redis://127.0.0.1:${port}`, pid: child.pid };
}
