import { randomBytes } from 'node:crypto';
import type { MikroORM } from '@mikro-orm/postgresql';
import { type Logger, pino } from 'pino';
import type { Passwords } from '../../src/accounts/auth/passwords.ts';
import { type Installation, openInstallation } from '../../src/control/installation.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { type Config, readConfig } from '../../src/lib/config/config.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { addUser, generatePassword } from '../../src/operator/credentials/users.ts';
import { newPhysicalName } from '../../src/operator/databases/store/database-names.ts';
import { checkManifest } from '../../src/operator/lifecycle/manifest.ts';
import { provision } from '../../src/operator/lifecycle/provision.ts';
import { findTenant } from '../../src/operator/registry/tenants.ts';
import { type RunningServer, startServer } from '../../src/service/server.ts';
import { Client } from './client.ts';
import { createQuickPasswords } from './quick-passwords.ts';
import { postgresUrl, server } from './test-server.ts';
import { laterObject, use } from './use.ts';
import { copyControl, copyTenant, nextTenantNumber, readWorldTemplate } from './world-template.ts';

/** A tenant, as tests see it. */
export interface TestTenant {
  id: number;
  guid: string;
  slug: string;
  database: string;
  /** Superuser URL of the tenant database. */
  adminUrl: string;
  admin: { email: string; password: string };
}

/** A separate installation: a control database, two tenants, and the service on a free port. */
export interface World {
  readonly installation: Installation;
  readonly control: MikroORM;
  readonly service: RunningServer;
  readonly config: Config;
  readonly url: string;
  readonly acme: TestTenant;
  readonly globex: TestTenant;
  /** Environment variables that make the command line use this installation. */
  readonly environment: Record<string, string>;
  /** Every line that the service logged. */
  readonly logs: string[];
  readonly log: Logger;
  readonly passwords: Passwords;
  /**
   * Offsets added to the wall clock (tokens), in s, and to the monotonic clock (response cache,
   * rate limits), in ms.
   */
  clock: {
    offsetSeconds: number;
    monotonicOffsetMs: number;
    /** The time at which the monotonic clock stands still; undefined while it goes on. */
    stoppedAtMs: number | undefined;
  };
  /** A client without a token. */
  readonly anonymous: Client;
  /** Logs in over HTTP, and returns a client of that user. */
  login(tenant: TestTenant, credentials?: { email: string; password: string }): Promise<Client>;
  /** Adds a user with exactly these permissions, logs in, and returns a client of that user. */
  loginAs(
    tenant: TestTenant,
    user: { permissions?: string[]; scope?: 'Self' | 'All'; entityId?: number | null },
  ): Promise<Client>;
  /**
   * Provisions another tenant with the code that the command line uses. `adminUrl` counts on
   * the suite's server only.
   */
  provision(slug: string, onServer?: string): Promise<TestTenant>;
  /** Starts another server of the service on the same installation. */
  startAnotherServer(
    environment?: Record<string, string>,
  ): Promise<{ service: RunningServer; url: string }>;
  close(): Promise<void>;
}

/**
 * Requests on a busy machine may take longer than clients are promised;
 * test/lib/runtime/deadline.test.ts sets its own.
 */
const deadlineMs = 60_000;

/**
 * @param environment environment variables that extend or override the defaults
 * @param passwords by default, hashing takes almost no time
 */
export async function createWorld(
  environment: Record<string, string> = {},
  passwords = createQuickPasswords(),
): Promise<World> {
  const name = `world_${randomBytes(5).toString('hex')}`;
  const template = readWorldTemplate();
  const controlUrl = databaseUrl(postgresUrl(), name);
  const { firstNumber, tenants, serviceLogin } = await withConnection(
    postgresUrl(),
    async client => {
      const firstNumber = await nextTenantNumber(client);
      const tenants = template.tenants.map(({ id, guid, slug, admin }, index): TestTenant => {
        const database = newPhysicalName(server, firstNumber + index);
        return {
          id,
          guid,
          slug,
          database,
          adminUrl: databaseUrl(postgresUrl(), database),
          admin: { ...admin },
        };
      });
      for (const [index, tenant] of template.tenants.entries()) {
        await copyTenant(client, tenant, tenants[index]?.database ?? '');
      }

      return { firstNumber, tenants, serviceLogin: await copyControl(client, name) };
    },
  );
  const [acme, globex] = tenants as [TestTenant, TestTenant];

  const settings = {
    DATABASE_URL: controlUrl,
    MASTER_KEY: template.masterKey,
    PORT: '0',
    MANAGEMENT_PORT: '0',
    PUBLIC_URL: 'http://backoffice.test',
    // Tests send more requests than a client may.
    RATE_LIMIT_GLOBAL: '1000000/60s',
    RATE_LIMIT_LOGIN: '1000000/15m',
    RATE_LIMIT_FAILURES: '1000000/24h',
    RATE_LIMIT_MAILS: '1000000/15m',
    RATE_LIMIT_PEOPLE: '1000000/24h',
    RATE_LIMIT_ACCOUNT: '1000000/15m',
    RATE_LIMIT_TOKEN: '1000000/60s',
    CONTROL_CONNECTIONS: '3', // of 8, a service opens 6 when it starts, which is 0.04 s of CPU time
    ACQUIRE_TIMEOUT_MS: '30000', // on a busy machine, a connection may take seconds
    ...environment,
  };
  const config = readConfig(settings);
  const logs: string[] = [];
  const log = pino({ level: 'trace' }, { write: line => void logs.push(line) });
  const installation = await openInstallation(config);
  const control = await installation.control();
  await control.em.execute(
    `update tenants set database_name = new.name, role_name = new.name
       from (values (${acme.id}, '${acme.database}'), (${globex.id}, '${globex.database}')) as new (id, name)
      where tenants.id = new.id;
     update tenant_databases d set database_name = t.database_name, role_name = t.role_name
       from tenants t where t.id = d.tenant_id;
     alter table tenants alter id restart with ${firstNumber + 2}`,
  );
  const clock: World['clock'] = { offsetSeconds: 0, monotonicOffsetMs: 0, stoppedAtMs: undefined };
  const now = () => Date.now() + clock.offsetSeconds * 1_000;
  const monotonicNow = () => (clock.stoppedAtMs ?? performance.now()) + clock.monotonicOffsetMs;
  const secrets = new Set([
    controlUrl,
    settings.MASTER_KEY,
    acme.admin.password,
    globex.admin.password,
  ]);
  const provisionTenant = async (slug: string, onServer?: string): Promise<TestTenant> => {
    const place = onServer === undefined ? {} : { server: onServer };
    const manifest = {
      slug,
      name: `${slug} Ltd`,
      admin: { email: `admin@${slug}.test` },
      ...place,
    };
    const { tenant, logins } = await provision(
      installation,
      passwords,
      checkManifest(manifest, slug),
      { reusesSlug: true }, // also that of a tenant that a test has purged
    );
    const [admin] = logins;
    if (!admin) throw new Error(`${slug} exists already`);
    secrets.add(admin.password);
    const { id, guid, databaseName: database } = tenant;
    return { id, guid, slug, database, adminUrl: databaseUrl(postgresUrl(), database), admin };
  };
  // The service has its own login, so every test shows that its rights are enough.
  const serviceUrl = databaseUrl(postgresUrl(), name, serviceLogin);
  const serviceInstallation = await openInstallation(
    readConfig({ ...settings, DATABASE_URL: serviceUrl }),
  );
  secrets.add(serviceUrl);
  const service = await startServer({
    config,
    installation: serviceInstallation,
    log,
    passwords,
    now,
    clock: monotonicNow,
    deadlineMs,
  });
  const others: RunningServer[] = [];
  const url = `http://127.0.0.1:${service.port}`;
  const anonymous = new Client(url);

  const login: World['login'] = async (tenant, credentials = tenant.admin) => {
    const { status, body } = await anonymous.post('/api/v1/auth/login', credentials, {
      'X-Tenant': tenant.guid,
    });
    if (status !== 200) throw new Error(`login returned ${status} ${JSON.stringify(body)}`);
    for (const secret of [credentials.password, body.accessToken, body.refreshToken]) {
      secrets.add(secret);
    }
    return new Client(url, body);
  };

  return {
    installation,
    control,
    service,
    config,
    url,
    acme,
    globex,
    environment: settings,
    logs,
    log,
    passwords,
    clock,
    anonymous,
    login,
    loginAs: async (tenant, { permissions, scope = 'All', entityId = null }) => {
      const role = `role-${randomBytes(4).toString('hex')}`;
      await control.em
        .fork()
        .execute('insert into roles (tenant_id, name, permissions) values (?, ?, ?::text[])', [
          tenant.id,
          role,
          `{${(permissions ?? []).join(',')}}`,
        ]);

      const user = { email: `${role}@${tenant.slug}.test`, password: generatePassword() };
      const owner = await findTenant(installation, tenant.slug);
      await addUser(installation, passwords, {
        tenant: owner,
        ...user,
        firstName: 'Test',
        lastName: 'User',
        role,
        scope,
        entityId,
      });

      return login(tenant, user);
    },
    provision: provisionTenant,
    startAnotherServer: async (extra = {}) => {
      const other = await startServer({
        config: readConfig({ ...settings, ...extra }),
        installation: serviceInstallation,
        log,
        passwords,
        now,
        clock: monotonicNow,
        deadlineMs,
      });
      others.push(other);
      return { service: other, url: `http://127.0.0.1:${other.port}` };
    },
    close: async () => {
      await Promise.all([service, ...others].map(each => each.stop()));

      // Whatever the tests of this world did, the log must contain no secret.
      const logText = logs.join('');
      for (const secret of secrets) {
        if (logText.includes(secret)) throw new Error('the log contains a secret');
      }

      const created = await control.em
        .fork()
        .execute<{ database: string; role: string }[]>(
          'select database_name as database, role_name as role from tenants',
        );

      await serviceInstallation.close();
      await installation.close();

      await withConnection(postgresUrl(), async client => {
        for (const database of [...created.map(({ database }) => database), name]) {
          await client.query(`drop database if exists "${database}" with (force)`);
        }

        // A database that a test renamed still depends on its role, which then cannot be
        // dropped.
        for (const { role } of [...created, { role: `${name}_service` }]) {
          await client.query(`drop role if exists "${role}"`).catch(() => {});
        }
      });
    },
  };
}

/** Creates a world before the tests of a `describe`, and closes it after them: see `use`. */
export const useWorld = (environment: Record<string, string> = {}): World =>
  use(() => createWorld(environment));

/**
 * Logs the administrator of a tenant in before the tests of a `describe`.
 * @returns the client, as `use` does
 */
export function useLogin(world: World, tenant: 'acme' | 'globex'): Client {
  let client: Client;
  before(async () => {
    client = await world.login(world[tenant]);
  });
  return laterObject(() => client);
}

/**
 * Starts a second process of the service before the tests of a `describe`; the world stops it.
 * @returns the URLs of both, as `use` does
 */
export function useTwoProcesses(world: World): readonly string[] {
  let urls: readonly string[];
  before(async () => {
    urls = [world.url, (await world.startAnotherServer()).url];
  });
  return laterObject(() => urls);
}

/** Runs SQL on a tenant database as superuser. */
export function sql<Row extends object>(
  tenant: Pick<TestTenant, 'adminUrl'>,
  text: string,
  values: unknown[] = [],
): Promise<Row[]> {
  return withConnection(
    tenant.adminUrl,
    async client => (await client.query(text, values)).rows as Row[],
  );
}

/** Runs SQL on the control database as the operator. */
export function controlSql<Row extends object>(
  world: World,
  text: string,
  values: unknown[] = [],
): Promise<Row[]> {
  return world.control.em.fork().execute<Row[]>(text, values);
}
