import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { loadMigrations, runMigrations } from '../../postgres/migration-steps.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../postgres/quote.ts';
import { scramVerifier } from '../../postgres/scram.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { ensureTemplate, migrationSettings, tenantGroup } from '../schema/template.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { type LockedTenant, readDatabases, type TenantDatabase } from './database-store.ts';
import {
  findRemains,
  isLost,
  isOwnRole,
  physicalName,
  type Remains,
  type RoleOwners,
  roleComment,
  warmMark,
} from './role-owner.ts';

/** What a new database is reserved for. */
export interface Reservation {
  readonly server: Server;
  readonly origin: string;
  /** The digest of the migrations that a warm database must have to be taken; undefined: none is taken. */
  readonly warmDigest?: string | undefined;
  readonly epoch: number;
}

/**
 * Reserves a database for a tenant: a warm one, which it gets in the same transaction, or a new name. A tenant that is
 * being provisioned gets the name at once.
 */
export async function reserveDatabase(
  control: pg.Client,
  secrets: SecretBox,
  { id: tenantId, guid }: LockedTenant,
  { server, origin, warmDigest, epoch }: Reservation,
): Promise<TenantDatabase> {
  const password = secrets.seal(randomBytes(24).toString('base64url'), owners.rolePassword(guid));
  const id = await inTransaction(control, async () => {
    const { rows: warm } = await control.query<{ id: string }>(
      `select id from tenant_databases
        where tenant_id is null and state = 'filled' and server_id = $1 and digest = $2
        order by id limit 1 for update skip locked`,
      [server.id, warmDigest],
    );
    const reserved = Number(warm[0]?.id ?? (await insertDatabase(control, { server, origin })));
    await control.query(
      `update tenant_databases set tenant_id = $2, state = 'reserved', origin = $3, role_password = $4, epoch = $5,
              filled_at = null where id = $1`,
      [reserved, tenantId, origin, password, epoch],
    );
    await control.query(
      `update tenants t set server_id = d.server_id, database_name = d.database_name, role_name = d.role_name,
              role_password = d.role_password, updated_at = now()
         from tenant_databases d where t.id = $1 and d.id = $2 and t.status = 'provisioning'`,
      [tenantId, reserved],
    );
    return reserved;
  });
  const found = (await readDatabases(control, tenantId, ['reserved'])).find(each => each.id === id);
  if (!found) throw new Error(`database ${id} is not reserved`);
  return found;
}

/** Reserves a new name, for no tenant yet. @returns its number, which the name contains */
export async function insertDatabase(
  control: Queryable,
  { server, origin, digest }: Pick<Reservation, 'server' | 'origin'> & { digest?: string },
): Promise<number> {
  const { rows } = await control.query<{ id: string }>(`select nextval(pg_get_serial_sequence('tenants', 'id')) as id`);
  const id = Number(rows[0]?.id);
  await control.query(
    `insert into tenant_databases (id, server_id, database_name, role_name, state, origin, digest)
     values ($1, $2, $3, $3, 'reserved', $4, $5)`,
    [id, server.id, physicalName(server, id), origin, digest],
  );
  return id;
}

/**
 * Creates the login role and the database that are reserved for a tenant, without a stamp. The role cannot log in.
 * @param version the last migration that the database gets; undefined: that of this build
 * @throws {OperatorError} when somebody else has the names
 */
export async function createDatabase(
  { servers, secrets, control }: Pick<Installation, 'servers' | 'secrets' | 'control'>,
  { server, database, role, password }: TenantDatabase,
  guid: string,
  version: string | undefined,
): Promise<void> {
  const adminUrl = servers.adminUrl(server);
  const roleOwners = { guid, warm: await warmMark(control) };
  if (!password) throw new Error(`${role} has no password`);
  const verifier = quoteLiteral(tenantVerifier(secrets.open(password, owners.rolePassword(guid)).toString()));
  await withConnection(adminUrl, async admin => {
    const found = await requireOwnNames(admin, { server, database, role }, roleOwners);
    if (!found.role) await ensureTemplate(server, adminUrl); // makes the group of the role
    // It cannot log in until the database is opened, can connect to that one only, and owns nothing.
    await admin.query(`
      ${found.role ? 'alter' : 'create'} role ${quote(role)} nologin password ${verifier};
      ${roleComment({ role, guid })}; grant ${quote(tenantGroup(server))} to ${quote(role)}`);
    if (found.database === 'broken') await admin.query(`drop database ${quote(database)}`);
    // A database that is there is a warm one.
    if (isLost(found)) await createAtVersion(admin, server, database, { adminUrl, version });
    await admin.query(`${limitConnect(database, role)}; alter database ${quote(database)} allow_connections true`);
  });
}

/**
 * Creates a database with the schema of one version, to which no login of a tenant can connect.
 * @param version its last migration; undefined: that of this build
 */
export async function createAtVersion(
  admin: pg.Client,
  server: Server,
  name: string,
  { adminUrl, version }: { adminUrl: string; version: string | undefined },
): Promise<void> {
  const isAtHead = version === undefined || version === (await tenantHead());
  if (isAtHead) await copyTemplate(admin, server, adminUrl, name);
  else await admin.query(`create database ${quote(name)} template template0 encoding 'UTF8'`);
  await admin.query(
    `revoke all on database ${quote(name)} from public; alter database ${quote(name)} allow_connections true`,
  );
  if (isAtHead) return;
  const migrations = await loadMigrations('tenant');
  const earlier = migrations.slice(0, migrations.findIndex(({ name }) => name === version) + 1);
  await runMigrations(databaseUrl(adminUrl, name), earlier, migrationSettings(server));
}

/**
 * Checks that the names of a database and its role are free, or belong to one of these owners.
 * @returns what there is of them
 * @throws {OperatorError} when the role, or a database without a role, belongs to another tenant or installation
 */
export async function requireOwnNames(
  admin: pg.Client,
  { server, database, role }: Pick<TenantDatabase, 'server' | 'database' | 'role'>,
  owners: RoleOwners,
): Promise<Remains> {
  const found = await findRemains(admin, { database, role });
  if (found.role ? isOwnRole(found.role.comment, owners) : found.database === null) return found;
  const what = found.role ? `the login role ${role}` : `the database ${database}`;
  throw new OperatorError(
    `${what} on server ${server.name} belongs to another tenant or installation: nothing was changed. Does another ` +
      'installation there have the same prefix?',
  );
}

/** Copies the template. The copy is closed to connections, because the privileges on it are not set yet. */
export async function copyTemplate(
  client: pg.Client,
  server: Pick<Server, 'name' | 'prefix'>,
  adminUrl: string,
  name: string,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const template = await ensureTemplate(server, adminUrl);
    try {
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
 * Returns the SCRAM verifier of a tenant's password, with one iteration. Thousands of iterations (RFC 7677 §4) protect
 * passwords that people choose. The passwords of tenants are 192 random bits, which cannot be guessed, and the
 * iterations would cost each new connection 1 to 2 ms.
 */
export function tenantVerifier(password: string): string {
  return scramVerifier(password, 1);
}
