import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createPasswords } from '../src/auth/passwords.ts';
import { generatePassword } from '../src/operator/tenants/users.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { makeBaseline, type Person } from './baseline.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { progress } from './bench-progress.ts';
import { type BenchTenant, makeTenants } from './bench-tenants.ts';
import { Children } from './children.ts';

/** What all works of the bench stand on: the servers, the databases, the tenants. Nobody answers requests yet. */
export interface Stage {
  readonly folder: string;
  readonly serverUrl: string;
  readonly controlUrl: string;
  readonly masterKey: string;
  readonly postgresPid: number;
  /** Undefined where there is no redis-server. */
  readonly redis: { url: string; pid: number } | undefined;
  /** Databases of the baselines. */
  readonly limitUrl: string;
  readonly peerUrl: string;
  /** Who logs in at the baselines. */
  readonly people: Person[];
  readonly tenants: BenchTenant[];
  readonly children: Children;
  close(): Promise<void>;
}

/** Settings of PostgreSQL that differ from its defaults; told with the results. */
export const postgresSettings = [
  'max_connections=300',
  'shared_buffers=256MB',
  'max_wal_size=4GB',
  'autovacuum_naptime=3600', // over 1,000 databases it would start a worker every 60 ms, in whatever work runs then
];

const peerFolder = fileURLToPath(new URL('fastify-reference/', import.meta.url));
const loginPeople = 10;

/** @param onOpen is given the way to close it all before anything can fail */
export async function openStage(tenantCount: number, onOpen: (close: () => Promise<void>) => void): Promise<Stage> {
  const children = new Children();
  let opening: ReturnType<typeof openBenchInstallation> | undefined;
  const close = async (): Promise<void> => {
    await children.stop();
    const opened = await opening?.catch(() => undefined); // what fails to open closes itself
    await opened?.close();
  };
  onOpen(close);

  if (!existsSync(join(peerFolder, 'node_modules'))) {
    progress('installing the peer');
    const args = ['ci', '--no-audit', '--no-fund', '--prefix', peerFolder];
    const npm = children.start('npm ci', 'npm', args, process.env); // its registry, its proxy
    if ((await npm.ended) !== 0) throw new Error(`the peer could not be installed: ${npm.tail()}`);
  }
  progress('starting PostgreSQL and Redis');
  opening = openBenchInstallation(postgresSettings);
  const opened = await opening;
  const { folder, serverUrl, controlUrl, masterKey } = opened;
  const redis = await startRedis(children, folder);

  const passwords = createPasswords(availableParallelism());
  const password = generatePassword();
  const people = Array.from({ length: loginPeople }, (_, n) => ({ email: `login-${n}@bench.test`, password }));
  const passwordHash = await passwords.hash(password);
  const limitUrl = await makeBaseline(serverUrl, 'bench_limit', people, passwordHash);
  const peerUrl = await makeBaseline(serverUrl, 'bench_peer', people, passwordHash);
  const tenants = await makeTenants(opened, passwords, tenantCount, loginPeople);
  await opened.leave();
  await withConnection(serverUrl, client => client.query('checkpoint')); // now, not in the middle of a work

  const postgresPid = Number((await readFile(join(folder, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
  const urls = { serverUrl, controlUrl, limitUrl, peerUrl };
  return { folder, masterKey, ...urls, postgresPid, redis, people, tenants, children, close };
}

async function startRedis(children: Children, folder: string): Promise<Stage['redis']> {
  const port = await freePort();
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder];
  const child = children.start('redis-server', 'redis-server', args);
  try {
    await child.wrote(/Ready to accept connections/);
  } catch (error) {
    if (!/ENOENT/.test(child.tail())) throw error;
    progress('there is no redis-server in PATH: service and peer count requests in their own memory');
    return undefined;
  }
  return { url: `redis://127.0.0.1:${port}`, pid: child.pid };
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0));
    });
  });
}
