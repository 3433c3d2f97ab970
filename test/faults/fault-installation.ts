import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createPasswords } from '../../src/accounts/auth/passwords.ts';
import { openInstallation } from '../../src/control/installation.ts';
import { requireMasterKey } from '../../src/control/present-key.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { checkManifest } from '../../src/operator/lifecycle/manifest.ts';
import { provision } from '../../src/operator/lifecycle/provision.ts';
import { migrateControl } from '../../src/operator/schema/migrate-control.ts';
import { createServiceLogin } from '../../src/operator/schema/service-login.ts';
import { runScript } from '../support/command-line.ts';
import { redisInstalled, startRedis, type TestRedis } from '../support/redis.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { type FaultPostgres, startFaultPostgres } from './fault-postgres.ts';
import { type FaultProxy, startFaultProxy } from './fault-proxy.ts';
import { FaultService } from './fault-service.ts';

export interface FaultTenant {
  readonly slug: string;
  readonly guid: string;
  readonly admin: { email: string; password: string };
  /** Superuser URL of the tenant database, past the proxies. */
  readonly adminUrl: string;
}

/**
 * An installation of real processes: two PostgreSQL servers, Redis, and services behind proxies
 * of their own.
 */
export interface FaultInstallation {
  /**
   * The server of the control database and of one tenant, and the server of the other tenants.
   */
  readonly servers: readonly [FaultPostgres, FaultPostgres];
  /** Undefined when Redis is not installed. */
  readonly redis: TestRedis | undefined;
  /** The way of all services to the second server. */
  readonly secondProxy: FaultProxy;
  readonly services: readonly FaultService[];
  readonly tenants: readonly FaultTenant[];
  close(): Promise<void>;
}

const tenantCount = 3;

export async function startFaultInstallation(serviceCount: number): Promise<FaultInstallation> {
  const folder = await makeServerFolder('faults');
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

  const [first, second] = await Promise.all(
    ['first', 'second'].map(async name => {
      await mkdir(join(folder, name));
      return startFaultPostgres(join(folder, name));
    }),
  );
  if (!first || !second) throw new Error('a server did not start');

  const secondProxy = await startFaultProxy(second.port);
  const redis = redisInstalled ? await startRedis() : undefined;

  const controlUrl = databaseUrl(first.url, 'office');
  await withConnection(first.url, client => client.query('create database office'));
  await migrateControl(controlUrl);

  const environment = { DATABASE_URL: controlUrl, MASTER_KEY: randomBytes(32).toString('base64') };
  const installation = await openInstallation(readConfig(environment));
  await requireMasterKey(installation.statements, installation.secrets);

  const secondUrl = withPort(second.url, secondProxy.port);
  const added = await runScript(
    'scripts/tenant.ts',
    ['server', 'add', 'second', '--capacity', '500'],
    environment,
    secondUrl,
  );
  if (added.code !== 0) throw new Error(`the second server was not added: ${added.stderr}`);

  const passwords = createPasswords();
  const tenants: FaultTenant[] = [];
  for (let index = 0; index < tenantCount; index++) {
    const [slug, server, { url }] =
      index === 0 ? ['alpha', 'default', first] : [`beta${index}`, 'second', second];
    const manifest = checkManifest(
      { slug, server, name: slug, admin: { email: `admin@${slug}.test` } },
      slug,
    );

    const { tenant, logins } = await provision(installation, passwords, manifest);
    const [admin] = logins;
    if (!admin) throw new Error(`${slug} has no administrator`);
    tenants.push({
      slug,
      guid: tenant.guid,
      admin,
      adminUrl: databaseUrl(url, tenant.databaseName),
    });
  }

  const serviceUrl = await createServiceLogin(controlUrl, randomBytes(18).toString('base64url'));
  await installation.close();

  const services = await Promise.all(
    Array.from({ length: serviceCount }, async (_, index) => {
      const controlProxy = await startFaultProxy(first.port);
      const redisProxy = redis && (await startFaultProxy(Number(new URL(redis.url).port)));
      const service = new FaultService(`service ${index}`, controlProxy, redisProxy, {
        ...environment,
        DATABASE_URL: withPort(serviceUrl, controlProxy.port),
        ...(redisProxy && { REDIS_URL: `redis://127.0.0.1:${redisProxy.port}` }),
      });

      await service.start();
      return service;
    }),
  );

  return {
    servers: [first, second],
    redis,
    secondProxy,
    services,
    tenants,
    close: async () => {
      await Promise.all(services.map(service => service.kill()));
      for (const { controlProxy, redisProxy } of services) {
        controlProxy.close();
        redisProxy?.close();
      }
      secondProxy.close();
      await redis?.close();
      await Promise.all([first.crash(), second.crash()]);
    },
  };
}

function withPort(address: string, port: number): string {
  return Object.assign(new URL(address), { port: String(port) }).href;
}
