import type pg from 'pg';
import type { Server, Tenant } from '../../control/fleet-entities.ts';
import { owners } from '../../control/secret-box.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { migrationNames } from '../../postgres/migration-names.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../postgres/quote.ts';
import { scramVerifier } from '../../postgres/scram.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { ensureTemplate, tenantGroup } from '../schema/template.ts';
import { warmName } from './physical-names.ts';
import { roleComment, roleStamps } from './role-stamp.ts';

/**
 * Creates the login role and the database of a tenant, with the tenant's guid inside, at the head of this build. It
 * can be run again after it was killed at any point, by this build or by another one.
 */
export async function createTenantDatabase({ secrets, servers }: Installation, tenant: Tenant): Promise<void> {
  const { server, databaseName: name, roleName } = tenant;
  const adminUrl = servers.adminUrl(server);
  const password = secrets.open(tenant.rolePassword, owners.rolePassword(tenant.guid)).toString();
  const head = (await migrationNames('tenant')).at(-1);
  await withConnection(adminUrl, async client => {
    const make = async (): Promise<string | undefined> => {
      await copyTemplate(client, server, adminUrl, name, () => makeRole(client, tenant, password));
      await client.query(`${limitConnect(name, roleName)}; alter database ${quote(name)} allow_connections true`);
      return stampIdentity(databaseUrl(adminUrl, name), tenant.guid);
    };
    const isWarm = await takeWarmDatabase(client, tenant, password);
    const version = isWarm ? await stampIdentity(databaseUrl(adminUrl, name), tenant.guid) : await make();
    if (version === head) return;
    // Another build made the copy and was killed before it wrote data into it.
    await client.query(`drop database ${quote(name)} with (force)`);
    await make();
  });
}

/**
 * Copies the template. The copy is closed to connections, because the privileges on it are not set yet.
 * @param before runs before each attempt, when the template exists
 */
export async function copyTemplate(
  client: pg.Client,
  server: Server,
  adminUrl: string,
  name: string,
  before = async () => {},
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const template = await ensureTemplate(server, adminUrl);
    await before();
    try {
      const { rows } = await client.query<{ broken: boolean }>(
        'select datconnlimit = -2 as broken from pg_database where datname = $1',
        [name],
      );
      // A DROP DATABASE that was interrupted leaves a database that can only be dropped.
      if (rows[0]?.broken) await client.query(`drop database ${quote(name)}`);
      if (rows[0] && !rows[0].broken) return;
      await client.query(
        `create database ${quote(name)} template ${quote(template)} strategy wal_log allow_connections false`,
      );
      return;
    } catch (error) {
      // Another process has just replaced the template (3D000) or is using it (55006).
      if (attempt === 5 || !['3D000', '55006'].includes(sqlState(error) ?? '')) throw error;
    }
  }
}

/** Returns SQL that lets one login role connect to a database, and no other role. */
export function limitConnect(database: string, role: string): string {
  const name = quote(database);
  return `revoke all on database ${name} from public; grant connect on database ${name} to ${quote(role)}`;
}

/**
 * Turns the claimed warm database into the tenant's: renames it and its role, sets the password, and opens it. All in
 * one transaction of the server, so a process that is killed leaves either all of these changes or none.
 * @returns false when the warm database does not exist or is unusable; the caller then copies the template
 */
async function takeWarmDatabase(client: pg.Client, tenant: Tenant, password: string): Promise<boolean> {
  const warm = warmName(tenant.server, tenant.id);
  const [database, role] = [quote(tenant.databaseName), quote(tenant.roleName)];
  const { rowCount } = await client.query(
    `select from pg_database d join pg_roles on rolname = datname
      where datname = $1 and not datallowconn and datconnlimit <> -2
        and not exists (select from pg_database where datname = $2)
        and not exists (select from pg_roles where rolname = $3)`,
    [warm, tenant.databaseName, tenant.roleName],
  );
  if (!rowCount) return false;
  await client.query(`
    alter database ${quote(warm)} rename to ${database};
    alter role ${quote(warm)} rename to ${role};
    alter role ${role} login password ${quoteLiteral(tenantVerifier(password))};
    ${roleComment(tenant)};
    alter database ${database} allow_connections true`);
  return true;
}

/**
 * Returns the SCRAM verifier of a tenant's password, with one iteration. Thousands of iterations (RFC 7677 §4) protect
 * passwords that people choose. The passwords of tenants are 192 random bits, which cannot be guessed, and the
 * iterations would cost each new connection 1 to 2 ms.
 */
export function tenantVerifier(password: string): string {
  return scramVerifier(password, 1);
}

type RoleOwner = Pick<Tenant, 'roleName' | 'guid' | 'server'>;

/**
 * Creates the login role of a tenant, or sets the password of the existing one. The role can connect to one database,
 * owns nothing, and has the privileges of the group of all tenants. A new role has no other attributes; an existing
 * one is not reset to that, because it would require a superuser.
 * @throws {OperatorError} when the role belongs to another tenant, whose password must not change
 */
export async function makeRole(client: pg.Client, tenant: RoleOwner, password: string): Promise<void> {
  const { roleName, guid, server } = tenant;
  const role = quote(roleName);
  const { rows } = await client.query<{ owner: string | null }>(
    `select shobj_description(oid, 'pg_authid') as owner from pg_roles where rolname = $1`,
    [roleName],
  );
  if (rows[0] && !roleStamps(guid).includes(rows[0].owner ?? '')) {
    const what = `the login role ${roleName} on server ${server.name} belongs to another tenant`;
    throw new OperatorError(`${what}: nothing was changed. Does another installation there have the same prefix?`);
  }
  const make = `${rows[0] ? 'alter' : 'create'} role ${role} login password ${quoteLiteral(tenantVerifier(password))}`;
  await client.query(`${make}; ${roleComment(tenant)}; grant ${quote(tenantGroup(server))} to ${role}`);
}

/** Writes the tenant's guid into its database. @returns the schema version of the database */
async function stampIdentity(url: string, guid: string): Promise<string | undefined> {
  return withConnection(url, async client => {
    await client.query('insert into tenant_identity (guid) values ($1) on conflict do nothing', [guid]);
    const { guid: found, applied } = await readSchemaState(client);
    if (found !== guid) throw new OperatorError('the database belongs to another tenant: nothing was changed');
    return applied.at(-1);
  });
}
