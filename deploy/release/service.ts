import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { environment, ReleaseError } from './run.ts';

/** A service that was started from the source, and the login of its demo user. */
export interface StartedService {
  readonly url: string;
  readonly tenant: string;
  readonly email: string;
  readonly password: string;
  stop(): Promise<void>;
}

const maxStartMs = 180_000; // it also makes the databases

/**
 * Starts the service with `npm start`, as the README says.
 * @param source folder in which `npm ci` has run
 * @throws {ReleaseError} when it does not serve
 */
export async function startService(source: string, work: string): Promise<StartedService> {
  const [port, managementPort] = [await freePort(), await freePort()];
  const child = spawn('npm', ['start'], {
    cwd: source,
    env: {
      PATH: environment.PATH,
      HOME: environment.HOME,
      PORT: String(port),
      MANAGEMENT_PORT: String(managementPort),
      DATA_DIR: join(work, 'data'),
      SHUTDOWN_DELAY: '0s',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'exit');
  let printed = '';

  const started = new Promise<boolean>(resolve => {
    const timer = setTimeout(() => resolve(false), maxStartMs);
    const end = (isStarted: boolean): void => {
      clearTimeout(timer);
      resolve(isStarted);
    };
    child.stdout.setEncoding('utf8').on('data', text => {
      printed += text;
      if (/^ +Password +\S+$/m.test(printed)) end(true);
    });
    child.stderr.setEncoding('utf8').on('data', text => {
      printed += text;
    });
    child.once('exit', () => end(false));
    child.once('error', () => end(false));
  });
  const stop = async (): Promise<void> => {
    if (child.exitCode === null) child.kill('SIGTERM');
    await ended;
  };

  if (!(await started)) {
    await stop();
    throw new ReleaseError(`npm start in ${source} does not serve:\n${printed.slice(-2_000)}`);
  }
  const read = (name: string): string =>
    new RegExp(`^ +${name} +(\\S+)`, 'm').exec(printed)?.[1] ?? '';
  return {
    url: read('Sales back office'),
    tenant: read('Demo tenant'),
    email: read('Demo user'),
    password: read('Password'),
    stop,
  };
}

/** Returns a port that nothing uses at this moment. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
