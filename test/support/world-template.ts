import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { openInstallation } from '../../src/control/installation.ts';
import { requireMasterKey } from '../../src/control/present-key.ts';
import { owners } from '../../src/control/secret-box.ts';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../src/lib/postgres/quote.ts';
import { generatePassword } from '../../src/operator/credentials/users.ts';
import {
  limitConnect,
  tenantVerifier,
} from '../../src/operator/databases/protocol/create-database.ts';
import { checkManifest } from '../../src/operator/lifecycle/manifest.ts';
import { provision } from '../../src/operator/lifecycle/provision.ts';
import { createServiceLogin } from '../../src/operator/schema/service-login.ts';
import { tenantGroup } from '../../src/operator/schema/template.ts';
import { createQuickPasswords } from './quick-passwords.ts';
import { controlTemplate, server } from './test-server.ts';

/** A tenant that every world has, and the database that its own one is copied from. */
interface TenantTemplate {
  readonly id: number;
  readonly guid: string;
  readonly slug: string;
  readonly database: string;
  readonly rolePassword: string;
  readonly admin: { readonly email: string; readonly password: string };
}

/** The template of which all worlds of a run are copies. */
interface WorldTemplate {
  readonly masterKey: string;
  readonly tenants: readonly TenantTemplate[];
}

/** Name of a control database with the tenants acme and globex. */
const worldControl = 'world_template';
/**
 * A sequence in the database `postgres` of the server: the worlds of all processes of a run are
 * numbered by it.
 */
const worldNumbers = 'world_numbers';
const variable = 'TEST_WORLD_TEMPLATE';

/**
 * Provisions acme and globex once for all worlds: that takes several times the CPU time of a
 * copy.
 */
export async function makeWorldTemplate(postgresUrl: string): Promise<void> {
  const masterKey = randomBytes(32).toString('base64');
  await withConnection(postgresUrl, client =>
    client.query(`create database ${worldControl} template ${controlTemplate} strategy file_copy`),
  );
  await withConnection(postgresUrl, client => client.query(`create sequence ${worldNumbers}`));

  const settings = { DATABASE_URL: databaseUrl(postgresUrl, worldControl), MASTER_KEY: masterKey };
  const installation = await openInstallation(readConfig(settings));
  await requireMasterKey(installation.statements, installation.secrets);

  const tenants: TenantTemplate[] = [];
  for (const slug of ['acme', 'globex']) {
    const manifest = checkManifest(
      { slug, name: `${slug} Ltd`, admin: { email: `admin@${slug}.test` } },
      slug,
    );

    const { tenant, logins } = await provision(installation, createQuickPasswords(), manifest);
    const { id, guid, databaseName: database } = tenant;
    const rolePassword = installation.secrets
      .open(tenant.rolePassword, owners.rolePassword(guid))
      .toString();

    tenants.push({
      id,
      guid,
      slug,
      database,
      rolePassword,
      admin: logins[0] as TenantTemplate['admin'],
    });
  }

  await installation.close();
  await createServiceLogin(settings.DATABASE_URL, generatePassword());

  await withConnection(postgresUrl, async client => {
    for (const name of [worldControl, ...tenants.map(({ database }) => database)]) {
      await client.query(`alter database ${quote(name)} allow_connections false`);
    }
  });

  process.env[variable] = JSON.stringify({ masterKey, tenants } satisfies WorldTemplate);
}

/** Returns what `makeWorldTemplate` has made in the main process of the run. */
export function readWorldTemplate(): WorldTemplate {
  return JSON.parse(process.env[variable] ?? '');
}

/**
 * Returns the first number for the tenants of a world. Worlds share a server, and the number in
 * the name of a tenant's database makes it unique: each world has 10,000 numbers for itself.
 * @param client a superuser, on the database `postgres`
 */
export async function nextTenantNumber(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ number: number }>(
    `select nextval('${worldNumbers}')::integer as number`,
  );
  return 1_000_000 + (rows[0]?.number ?? 0) * 10_000;
}

/**
 * Copies the control database, and makes the login of its service, which has the privileges of
 * the template's.
 * @param client a superuser, on another database
 * @returns the login and its password
 */
export async function copyControl(
  client: pg.Client,
  name: string,
): Promise<{ user: string; password: string }> {
  // Copying files takes a third of the CPU time that copying through the write-ahead log takes.
  await client.query(`create database ${quote(name)} template ${worldControl} strategy file_copy`);
  const [user, password] = [`${name}_service`, generatePassword()];
  // PostgreSQL does not copy the privileges of a template database.
  await client.query(
    `revoke all on database ${quote(name)} from public;
     create role ${quote(user)} login password ${quoteLiteral(tenantVerifier(password))} in role ${worldControl}_service;
     grant connect on database ${quote(name)} to ${quote(user)}`,
  );
  return { user, password };
}

/**
 * Copies a tenant's database, and makes its login role, both with this name. The control
 * database still has the old one.
 */
export async function copyTenant(
  client: pg.Client,
  tenant: TenantTemplate,
  name: string,
): Promise<void> {
  await client.query(
    `create database ${quote(name)} template ${quote(tenant.database)} strategy file_copy`,
  );
  await client.query(
    `create role ${quote(name)} login password ${quoteLiteral(tenantVerifier(tenant.rolePassword))};
     grant ${quote(tenantGroup(server))} to ${quote(name)};
     ${limitConnect(name, name)}`,
  );
}
