import { spawn, spawnSync } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parsePostgresUrl } from '../../src/lib/config/postgres-url.ts';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';

/** A PgBouncer in front of a server. */
export interface PgBouncer {
  readonly port: number;
  /** Returns a URL with the port of PgBouncer in place of that of the server. */
  through(url: string): string;
  /** Lets it lead to another server, and read its file again. */
  leadTo(url: string): Promise<void>;
  close(): Promise<void>;
}

interface PgBouncerOptions {
  readonly mode: 'transaction' | 'session';
  /** Further lines of its file. */
  readonly settings?: string;
  /** URLs of the server: the first one is of the login that finds the others. */
  readonly urls: readonly [string, ...string[]];
}

/** Returns the version of PgBouncer, such as 1.24; undefined if it is not installed. */
export function pgBouncerVersion(): number | undefined {
  const { stdout } = spawnSync('pgbouncer', ['--version'], { encoding: 'utf8' });
  const [, version] = /^PgBouncer (\d+\.\d+)/.exec(stdout ?? '') ?? [];

  return version === undefined ? undefined : Number(version);
}

/** Starts PgBouncer, and waits until it accepts connections. */
export async function startPgBouncer({
  mode,
  settings = '',
  urls,
}: PgBouncerOptions): Promise<PgBouncer> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-pgbouncer-'));
  await chmod(folder, 0o755);
  const port = await freePort();
  const file = join(folder, 'pgbouncer.ini');
  const users = join(folder, 'users');

  const logins = urls.map(url => {
    const { user, password } = parsePostgresUrl(url);
    return `"${user}" "${password}"\n`;
  });
  await writeFile(users, logins.join(''), { mode: 0o644 });

  const { user: authUser } = parsePostgresUrl(urls[0]);
  const poolSize = settings.includes('default_pool_size') ? '' : 'default_pool_size = 20';
  const configure = (url: string): Promise<void> => {
    const { hostname, port: serverPort } = new URL(url);
    const text = `[databases]
* = host=${hostname} port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
auth_user = ${authUser}
pool_mode = ${mode}
${poolSize}
${settings}`;
    return writeFile(file, text, { mode: 0o644 });
  };
  await configure(urls[0]);

  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const pooler = spawn('pgbouncer', [...user, file], { stdio: 'ignore' });
  await eventually(() => accepts(port), 10_000);

  return {
    port,
    through: url => Object.assign(new URL(url), { port: String(port) }).href,
    leadTo: async url => {
      await configure(url);
      pooler.kill('SIGHUP');
    },
    close: async () => {
      pooler.kill('SIGKILL');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function accepts(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
