import { randomBytes } from 'node:crypto';
import pLimit, { type LimitFunction } from 'p-limit';
import type pg from 'pg';
import type { Server } from '../../../control/control-entities.ts';
import type { KeyAccess, ServerAccess } from '../../../control/installation.ts';
import { owners, type SecretBox } from '../../../control/secret-box.ts';
import { databaseUrl } from '../../../control/server-urls.ts';
import { tenantHead } from '../../../control/tenant-head.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { loadMigrations, runMigrations } from '../../../lib/postgres/migration-steps.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../../lib/postgres/quote.ts';
import { scramVerifier } from '../../../lib/postgres/scram.ts';
import { createPrivate } from '../../schema/owned-databases.ts';
import { ensureTemplate, migrationSettings, tenantGroup } from '../../schema/template.ts';
import { newDatabaseOptions } from '../../schema/text-order.ts';
import { findRemains, newPhysicalName } from '../store/database-names.ts';
import {
  type DatabaseAddress,
  type LockedTenant,
  readDatabases,
  type TenantDatabase,
} from '../store/database-store.ts';

/** The purpose for which a new database is reserved. */
export interface Reservation {
  readonly server: Server;
  readonly origin: string;
  readonly epoch: number;
}

/** Reserves a database for a tenant: records a new name, and a password of its role. */
export async function reserveDatabase(
  control: pg.Client,
  secrets: SecretBox,
  tenant: LockedTenant,
  { server, origin, epoch }: Reservation,
): Promise<TenantDatabase> {
  const { rows } = await control.query<{ id: string }>(
    `select nextval(pg_get_serial_sequence('tenants', 'id')) as id`,
  );
  const id = Number(rows[0]?.id);
  const name = newPhysicalName(server, id);
  const password = secrets.seal(
    randomBytes(24).toString('base64url'),
    owners.rolePassword(tenant.guid),
  );

  await control.query(
    `insert into tenant_databases
            (id, tenant_id, server_id, database_name, role_name, role_password, state, origin, epoch)
     values ($1, $2, $3, $4, $4, $5, 'reserved', $6, $7)`,
    [id, tenant.id, server.id, name, password, origin, epoch],
  );

  const found = (await readDatabases(control, tenant.id, ['reserved'])).find(
    each => each.id === id,
  );
  if (!found) throw new Error(`database ${id} is not reserved`);

  return found;
}

/** Somebody else has a database or a login role with the name of a reserved database. */
export class NameTakenError extends OperatorError {
  override name = 'NameTakenError';

  constructor({ server, database }: DatabaseAddress, cause?: unknown) {
    super(
      `server ${server.name} has a database or a login role ${database}, which this installation has not made: ` +
        'nothing was changed in it. Run the command again: it uses another name',
      { cause },
    );
  }
}

/**
 * Creates the login role and the database that are reserved for a tenant, without a stamp. The
 * role cannot log in. A database and a role that exist are never used.
 * @param version the last migration that the database gets; undefined: that of this build
 * @throws {NameTakenError} when the server has a database or a role with the name; then it has
 *   nothing of this reservation
 */
export async function createDatabase(
  { servers, secrets }: ServerAccess & KeyAccess,
  reserved: TenantDatabase,
  guid: string,
  version: string | undefined,
): Promise<void> {
  const { server, database, role, password } = reserved;
  if (!password) throw new Error(`${role} has no password`);

  const adminUrl = servers.adminUrl(server);
  const verifier = quoteLiteral(
    tenantVerifier(secrets.open(password, owners.rolePassword(guid)).toString()),
  );

  await withConnection(adminUrl, async admin => {
    const found = await findRemains(admin, reserved);
    if (found.database || found.role) throw new NameTakenError(reserved);

    await ensureTemplate(admin, server, adminUrl); // makes the group of the role

    // The login role cannot log in until the database is opened, can connect to this database
    // only, and owns nothing.
    const createRole = `
      create role ${quote(role)} nologin password ${verifier};
      grant ${quote(tenantGroup(server))} to ${quote(role)}`;
    await admin.query(createRole).catch(error => throwIfTaken(error, reserved));

    await createAtVersion(admin, server, database, { adminUrl, version }).catch(async error => {
      if (error instanceof NameTakenError) await admin.query(`drop role ${quote(role)}`);
      throw error;
    });

    await admin.query(limitConnect(database, role));
  });
}

/** @throws {NameTakenError} in place of the error of a name that exists */
function throwIfTaken(error: unknown, names: DatabaseAddress): never {
  const isTaken = ['42710', '42P04', '23505'].includes(sqlState(error) ?? '');
  throw isTaken ? new NameTakenError(names, error) : error;
}

/**
 * Creates a database with the schema of one version, to which no login of a tenant can connect.
 * @param version its last migration; undefined: that of this build
 * @throws {NameTakenError} when the server has a database with the name
 */
export async function createAtVersion(
  admin: pg.Client,
  server: Server,
  name: string,
  { adminUrl, version }: { adminUrl: string; version: string | undefined },
): Promise<void> {
  const isAtHead = version === undefined || version === (await tenantHead());

  if (isAtHead) await copyTemplate(admin, server, adminUrl, name);
  else await createNew(admin, { server, database: name }, await newDatabaseOptions(admin));
  if (isAtHead) return;

  const migrations = await loadMigrations('tenant');
  const earlier = migrations.slice(0, migrations.findIndex(({ name }) => name === version) + 1);
  await runMigrations(databaseUrl(adminUrl, name), earlier, migrationSettings(server));
}

/** More concurrent copies of the template would slow down the tenants of the server. */
const maxCopies = 2;
/** The turns of the copies that this process makes, by the id of the server. */
const copyTurns = new Map<number, LimitFunction>();

function copyTurnsOf({ id }: Server): LimitFunction {
  const turns = copyTurns.get(id) ?? pLimit(maxCopies);
  copyTurns.set(id, turns);

  return turns;
}

/**
 * Copies the template. Several copies can be made at once, because the template is closed, so
 * that no session is in it.
 */
async function copyTemplate(
  admin: pg.Client,
  server: Server,
  adminUrl: string,
  name: string,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const template = await ensureTemplate(admin, server, adminUrl);
    const options = `template ${quote(template)} strategy wal_log`;
    try {
      await copyTurnsOf(server)(() => createNew(admin, { server, database: name }, options));
      return;
    } catch (error) {
      // Another process has just replaced the template (3D000), or autovacuum is in it (55006).
      if (attempt === 5 || !['3D000', '55006'].includes(sqlState(error) ?? '')) throw error;
    }
  }
}

/**
 * Creates a database.
 * @throws {NameTakenError} when the server has one with the name
 */
async function createNew(admin: pg.Client, names: DatabaseAddress, options: string): Promise<void> {
  await createPrivate(admin, names.database, options).catch(error => throwIfTaken(error, names));
}

/** Returns SQL that lets one login role connect to a database, and no other role. */
export function limitConnect(database: string, role: string): string {
  const name = quote(database);
  return `revoke all on database ${name} from public; grant connect on database ${name} to ${quote(role)}`;
}

/**
 * Returns the SCRAM verifier of a tenant's password, with one iteration. Thousands of
 * iterations (RFC 7677 §4) protect passwords that people choose. The passwords of tenants are
 * 192 random bits, which cannot be guessed, and the iterations would cost each new connection 1
 * to 2 ms.
 */
export function tenantVerifier(password: string): string {
  return scramVerifier(password, 1);
}
