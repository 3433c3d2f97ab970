import type pg from 'pg';
import type { Tenant } from '../../../control/fleet-entities.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { sqlState } from '../../../postgres/database-error.ts';
import { loadMigrations } from '../../../postgres/migration-steps.ts';
import { quoteIdentifier } from '../../../postgres/quote.ts';
import { lockTenant } from '../../move/lock-tenant.ts';
import { physicalName } from '../../provisioning/physical-names.ts';
import { roleStamps } from '../../provisioning/role-stamp.ts';
import { createTenantDatabase } from '../../provisioning/tenant-database.ts';
import { compatibleFrom } from '../../schema/schema-steps.ts';
import { headFingerprint } from '../../schema/template-fingerprint.ts';
import { requireNotPurging } from '../../tenants/purging.ts';
import { findTenant } from '../../tenants/tenants.ts';
import { fillTenant, type RestorableData, requireKnownVersion } from '../side-tenant.ts';
import { announceData } from '../swap/exchange-pointers.ts';
import { type LostStep, lostSteps } from './lost-protocol.ts';

/**
 * Restores the lost database of a tenant, with new names, and serves the tenant again. Killed at any point, the command
 * is run again, also with other data: `lostSteps` has the proof.
 * @param onStep called before each step
 * @throws {OperatorError} when the database exists, or another command works on the tenant
 */
export async function restoreLostTenant(
  installation: Installation,
  slug: string,
  data: RestorableData,
  onStep: (step: LostStep) => void = () => {},
): Promise<Tenant> {
  await requireKnownVersion(data.schemaVersion);
  return withConnection(installation.controlUrl, async control => {
    const { id } = await findTenant(installation, slug);
    await lockTenant(control, id, slug);
    const found = await findTenant(installation, slug);
    await requireLost(installation, found);
    let tenant = found;
    const effects: Record<LostStep, () => Promise<void>> = {
      'remove remains': () => removeRemains(installation, found),
      'take out of service': async () => {
        await begin(control, found, data);
        tenant = await findTenant(installation, slug);
      },
      'create database': () => createTenantDatabase(installation, tenant),
      'fill database': () => fillTenant(installation, tenant, data),
      serve: () => end(installation, control, tenant),
    };
    for (const step of lostSteps) {
      onStep(step);
      await effects[step]();
    }
    return findTenant(installation, slug);
  });
}

/** @throws {OperatorError} when the server has the database, and no restore of it has begun; or the tenant is purged */
export async function requireLost(installation: Installation, tenant: Tenant): Promise<void> {
  const { servers } = installation;
  await requireNotPurging(installation, tenant.slug);
  const { slug, status, server, databaseName, restoring } = tenant;
  if (status === 'provisioning') throw new OperatorError(`${slug} is not completely provisioned: provision it again`);
  const { exists } = await withConnection(servers.adminUrl(server), admin => findRemains(admin, tenant));
  if (!exists || restoring) return;
  throw new OperatorError(
    `Server ${server.name} has database ${databaseName} of ${slug}: nothing was changed. Restore beside it ` +
      `(--to <new-slug>), or rename it if it cannot be used: alter database ${quoteIdentifier(databaseName)} rename to …;`,
  );
}

interface Remains {
  /** True if the database exists, and is not half dropped. */
  exists: boolean;
  isHalfDropped: boolean;
  /** True if the login role belongs to the tenant: another installation may use the same names. */
  hasRole: boolean;
}

async function findRemains(admin: pg.Client, { databaseName, roleName, guid }: Tenant): Promise<Remains> {
  const { rows } = await admin.query<Remains>(
    `select exists (select from pg_database where datname = $1 and datconnlimit <> -2) as exists,
            exists (select from pg_database where datname = $1 and datconnlimit = -2) as "isHalfDropped",
            exists (select from pg_roles
                     where rolname = $2 and shobj_description(oid, 'pg_authid') = any ($3)) as "hasRole"`,
    [databaseName, roleName, roleStamps(guid)],
  );
  return rows[0] as Remains;
}

/** Drops what the lost database, or a restore of it that has begun, has left on the server. */
async function removeRemains({ servers }: Installation, tenant: Tenant): Promise<void> {
  const [database, role] = [quoteIdentifier(tenant.databaseName), quoteIdentifier(tenant.roleName)];
  await withConnection(servers.adminUrl(tenant.server), async admin => {
    const { isHalfDropped, hasRole } = await findRemains(admin, tenant);
    // Dropping the database ends the sessions of the role, which only a superuser or a member of the role may do.
    if (hasRole) await admin.query(`grant ${role} to current_user`);
    if (isHalfDropped || (tenant.restoring && hasRole))
      await admin.query(`drop database if exists ${database} with (force)`);
    // A database that an operator has renamed still lets the role connect. The role owns nothing.
    if (hasRole) await admin.query(`drop owned by ${role}; drop role ${role}`).catch(ignoreDependent);
  });
}

/** An operator has granted the role rights on objects of another database. */
function ignoreDependent(error: unknown): void {
  if (sqlState(error) !== '2BP01') throw error;
}

/** Gives the tenant the names of its next database, and marks it. An unfinished move has that one in place of the lost. */
async function begin(control: pg.Client, tenant: Tenant, { description }: RestorableData): Promise<void> {
  const { id, server, databaseName, restoring } = tenant;
  await inTransaction(control, async () => {
    const { rows } = await control.query<{ id: string }>(
      `select nextval(pg_get_serial_sequence('tenants', 'id')) as id`,
    );
    const name = physicalName(server, Number(rows[0]?.id));
    await control.query(
      `update tenants set restoring = $2, database_name = $3, role_name = $3, schema_version = null,
              compatible_from = null, schema_fingerprint = null, updated_at = now()
        where id = $1`,
      [id, description, name],
    );
    await control.query(
      `update tenant_moves set from_database = $3, from_role = $3
        where tenant_id = $1 and from_database = $2 and state not in ('switched', 'settling', 'settled', 'aborted')`,
      [id, databaseName, name],
    );
    await control.query(
      `update tenant_moves set to_database = $3, to_role = $3
        where tenant_id = $1 and to_database = $2 and state = 'verified'`,
      [id, databaseName, name],
    );
    // The database of a restore that was not completed was never that of the tenant.
    if (restoring)
      await control.query('delete from former_databases where tenant_id = $1 and database_name = $2', [
        id,
        databaseName,
      ]);
  });
}

async function end({ control, servers }: Installation, client: pg.Client, tenant: Tenant): Promise<void> {
  const { id, guid, slug, server, databaseName } = tenant;
  const migrations = await loadMigrations('tenant');
  const fingerprint = await headFingerprint(control, server, servers.adminUrl(server));
  await inTransaction(client, async () => {
    const { rowCount } = await client.query(
      `update tenants set restoring = null, schema_version = $2, compatible_from = $3, schema_fingerprint = $4,
              updated_at = now()
        where id = $1 and restoring is not null and database_name = $5`,
      [id, migrations.at(-1)?.name, compatibleFrom(migrations), fingerprint, databaseName],
    );
    if (!rowCount) throw new OperatorError(`another run restores ${slug} now: this one has stopped`);
    await announceData(client, guid);
  });
}

async function inTransaction(client: pg.Client, work: () => Promise<void>): Promise<void> {
  await client.query('begin');
  try {
    await work();
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}
