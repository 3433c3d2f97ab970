import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { createPasswords } from '../../accounts/auth/passwords.ts';
import { closeIdleConnections } from '../../control/control-pool.ts';
import type { DemoLogin } from '../../control/demo-login.ts';
import { type Installation, openControl } from '../../control/installation.ts';
import type { Config } from '../../lib/config/config.ts';
import {
  unverifiedHost,
  unverifiedRedisHost,
  unverifiedText,
} from '../../lib/postgres/unverified-host.ts';
import { provisionDemoTenant } from '../lifecycle/demo-records.ts';
import { readManifest } from '../lifecycle/manifest.ts';
import { requireControlHead } from '../recovery/control-head.ts';
import { migrateTenants } from '../schema/migrate-tenants.ts';
import { createServiceLogin, isOperatorLogin } from '../schema/service-login.ts';
import { readDemoLogin } from './read-demo-login.ts';

/** An installation on which the service can run. */
export interface PreparedInstallation {
  /** The installation; on the embedded PostgreSQL, opened with the login of the service. */
  readonly installation: Installation;
  /** The demo tenant, on the embedded PostgreSQL. */
  readonly demo: DemoLogin | undefined;
}

/**
 * Checks an installation, and on the embedded PostgreSQL brings it to the version of this
 * build, with a demo tenant.
 * @throws {OperatorError} when the service cannot run on it
 */
export async function prepareInstallation(
  installation: Installation,
  config: Config,
  log: Logger,
): Promise<PreparedInstallation> {
  const prepared = await prepare(installation, config, log);
  // The workers have connections of their own.
  if (config.processes > 1) await closeIdleConnections(installation.pool, 0);
  return prepared;
}

async function prepare(
  installation: Installation,
  config: Config,
  log: Logger,
): Promise<PreparedInstallation> {
  await requireControlHead(installation);
  await warnOfUnverifiedHosts(installation, config, log);
  if (!installation.embedded) {
    await warnOfOperatorLogin(installation, log);
    await warnOfFewConnections(installation, config, log);
    return { installation, demo: undefined };
  }
  const demo = await provisionDemo(installation, config.dataDir, log);
  return { installation: await withServiceLogin(installation), demo };
}

/** Provisions the demo tenant and migrates all tenants to head. */
async function provisionDemo(
  installation: Installation,
  folder: string,
  log: Logger,
): Promise<DemoLogin> {
  const manifest = await readManifest(
    fileURLToPath(new URL('../../../tenants/demo.json', import.meta.url)),
  );
  const passwords = createPasswords();
  const provisioned = await provisionDemoTenant(installation, passwords, manifest);
  const failed = (await migrateTenants(installation)).outcomes.filter(
    outcome => outcome.state === 'failed',
  );

  for (const { slug, error } of failed) {
    log.error({ event: 'not_migrated', slug }, `the tenant could not be migrated: ${error}`);
  }

  return readDemoLogin(installation, passwords, provisioned, manifest.admin.email, folder);
}

/**
 * Opens the embedded control database with the login of the service: it has the same rights as
 * in production.
 */
async function withServiceLogin(operator: Installation): Promise<Installation> {
  // Other processes on the same embedded PostgreSQL derive the same password.
  const password = operator.secrets.mac('service_login').toString('base64url');
  const controlUrl = await createServiceLogin(operator.controlUrl, password);

  return openControl({ ...operator, controlUrl }, operator.member);
}

/**
 * Logs one warning for all PostgreSQL servers and Redis whose certificates are not verified:
 * their connections carry every secret of the tenants.
 */
async function warnOfUnverifiedHosts(
  { statements, controlUrl }: Installation,
  config: Config,
  log: Logger,
): Promise<void> {
  const { rows } = await statements.query<{ address: string }>(
    'select address from servers where address is not null order by name',
  );
  const urls = [controlUrl, ...rows.map(({ address }) => address)];
  const redisHost = config.redisUrl && unverifiedRedisHost(config.redisUrl);
  const hosts = new Set(
    [...urls.map(unverifiedHost), redisHost].filter(host => host !== undefined),
  );

  if (hosts.size > 0) {
    log.warn(
      { event: 'unverified_tls', hosts: [...hosts] },
      `${unverifiedText([...hosts].join(', '))}; use sslmode=verify-full for PostgreSQL and rediss:// for Redis`,
    );
  }
}

/**
 * Warns of a login with the rights of an operator: the service does not need them, and an
 * attacker who takes it over should not get them.
 */
async function warnOfOperatorLogin(installation: Installation, log: Logger): Promise<void> {
  if (await isOperatorLogin(installation)) {
    log.warn(
      { event: 'operator_login' },
      'the service runs with the login of an operator; make one of its own: ' +
        'bin/backoffice control service-login',
    );
  }
}

/**
 * Warns of a server that accepts fewer connections than the budget: it refuses connections
 * while requests wait.
 */
async function warnOfFewConnections(
  { statements }: Installation,
  { connectionBudget }: Config,
  log: Logger,
): Promise<void> {
  const { rows } = await statements.query<{ accepted: number }>(
    `select sum(case name when 'max_connections' then setting::int else -setting::int end)::int as accepted
       from pg_settings where name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')`,
  );
  const [server] = rows;
  if (server && server.accepted < connectionBudget) {
    log.warn(
      { event: 'few_connections', accepted: server.accepted, connectionBudget },
      `the server of the control database accepts ${server.accepted} connections, ` +
        `CONNECTION_BUDGET is ${connectionBudget}: requests will wait and fail; raise ` +
        'max_connections, or lower CONNECTION_BUDGET',
    );
  }
}
