import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createPasswords } from '../src/accounts/auth/passwords.ts';
import { startEmbeddedPostgres } from '../src/lib/embedded/postgres.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { generatePassword } from '../src/operator/credentials/users.ts';
import { addServer } from '../src/operator/servers/add-server.ts';
import { type Credentials, createAuditedDatabase, createBaselineDatabase } from './baseline.ts';
import {
  type BenchInstallation,
  changeSetting,
  openBenchInstallation,
} from './bench-installation.ts';
import { progress } from './bench-progress.ts';
import { type BenchServer, type BenchTenant, makeTenants } from './bench-tenants.ts';
import { Children } from './children.ts';
import { startRedis } from './redis.ts';

/**
 * The environment of all workloads: PostgreSQL, Redis, databases and tenants. No HTTP server
 * runs in it yet.
 */
export interface Testbed {
  readonly folder: string;
  readonly serverUrl: string;
  readonly controlUrl: string;
  readonly masterKey: string;
  readonly postgresPid: number;
  /** Settings of PostgreSQL that differ from its defaults; the report lists them. */
  readonly postgresSettings: string[];
  /** Undefined if redis-server is not installed. */
  readonly redis: { url: string; pid: number } | undefined;
  /** Databases of the raw-pg baseline and of the Fastify reference. */
  readonly rawPgUrl: string;
  readonly fastifyUrl: string;
  /** Database of the raw-pg baseline that writes audit entries. */
  readonly auditedUrl: string;
  /** Users of the first two of these databases. */
  readonly users: Credentials[];
  readonly tenants: BenchTenant[];
  readonly children: Children;
  /**
   * Stops autovacuum while another server is measured, because its workers take time of all
   * cores.
   */
  setIdle(isIdle: boolean): Promise<void>;
  close(): Promise<void>;
}

/**
 * The settings of the server: by default, the largest connection budget of a workload and the
 * other servers would not find room together.
 */
const neededSettings = ['max_connections=300'];

/**
 * Settings that operators tune; a run with `--tuned` measures a second server that has them.
 */
const tunedSettings = [
  'shared_buffers=256MB',
  'max_wal_size=4GB',
  // with 1,000 databases, the default starts a worker every 60 ms, during every workload
  'autovacuum_naptime=3600',
];

const fastifyFolder = fileURLToPath(new URL('fastify-reference/', import.meta.url));
const loginUserCount = 10;

export interface TestbedOptions {
  tenantCount: number;
  /** Half of the tenants are on a second server of PostgreSQL. */
  hasSecondServer?: boolean;
  /** Tunes PostgreSQL, which has its own defaults otherwise. */
  isTuned: boolean;
  /** Receives the function that closes everything, before anything can fail. */
  onOpen: (close: () => Promise<void>) => unknown;
}

export async function openTestbed({
  tenantCount,
  hasSecondServer = false,
  isTuned,
  onOpen,
}: TestbedOptions): Promise<Testbed> {
  const children = new Children();
  let opening: ReturnType<typeof openBenchInstallation> | undefined;
  let second: Awaited<ReturnType<typeof addSecondServer>> | undefined;
  const close = async (): Promise<void> => {
    await children.stop();
    await second?.leave();
    // an installation that fails to open closes itself
    const opened = await opening?.catch(() => undefined);
    await opened?.close();
  };
  onOpen(close);

  await installFastify(children);
  progress('starting PostgreSQL and Redis');
  const postgresSettings = [...neededSettings, ...(isTuned ? tunedSettings : [])];
  opening = openBenchInstallation(postgresSettings);
  const opened = await opening;
  const { folder, serverUrl, controlUrl, masterKey, postgresPid } = opened;
  const redis = await startRedis(children, folder);

  const passwords = createPasswords();
  const password = generatePassword();
  const users = Array.from({ length: loginUserCount }, (_, n) => ({
    email: `login-${n}@bench.test`,
    password,
  }));
  const passwordHash = await passwords.hash(password);
  const rawPgUrl = await createBaselineDatabase(serverUrl, 'bench_raw_pg', users, passwordHash);
  const fastifyUrl = await createBaselineDatabase(serverUrl, 'bench_fastify', users, passwordHash);
  if (hasSecondServer) second = await addSecondServer(opened, postgresSettings);
  const servers = [{ name: 'default', url: serverUrl }, ...(second ? [second] : [])];
  const tenants = await makeTenants(opened, passwords, tenantCount, loginUserCount, servers);
  await opened.disconnect();
  const [first] = tenants;
  if (!first) throw new Error('the testbed has no tenant');
  const auditedUrl = await createAuditedDatabase(serverUrl, 'bench_audited', first.url);
  for (const { url } of servers) {
    // so that none runs during a workload
    await withConnection(url, client => client.query('checkpoint'));
  }

  const setIdle = (isIdle: boolean): Promise<void> =>
    changeSetting(serverUrl, isIdle ? 'set autovacuum to off' : 'reset autovacuum');

  const urls = { serverUrl, controlUrl, rawPgUrl, fastifyUrl, auditedUrl };
  return {
    folder,
    masterKey,
    ...urls,
    postgresPid,
    postgresSettings,
    redis,
    users,
    tenants,
    children,
    setIdle,
    close,
  };
}

async function addSecondServer(
  { installation, folder }: BenchInstallation,
  settings: string[],
): Promise<BenchServer & { leave(): Promise<void> }> {
  const name = 'second';
  const { url, leave } = await startEmbeddedPostgres(join(folder, name), { settings });
  await addServer(installation, name, url, {}, false);
  return { name, url, leave };
}

/**
 * Installs the packages of the Fastify reference, which include autocannon, unless they are
 * there.
 */
export async function installFastify(children: Children): Promise<void> {
  if (existsSync(join(fastifyFolder, 'node_modules'))) return;

  progress('installing the Fastify reference');
  const args = ['ci', '--no-audit', '--no-fund', '--prefix', fastifyFolder];
  // npm reads its registry and proxy from it
  const npm = children.start('npm ci', 'npm', args, process.env);
  if ((await npm.ended) !== 0) {
    throw new Error(`the Fastify reference could not be installed: ${npm.recentOutput()}`);
  }
}
