import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Tenant } from '../../../control/fleet-entities.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { withConnection } from '../../../postgres/connection.ts';
import { loadMigrations } from '../../../postgres/migration-steps.ts';
import { quoteIdentifier } from '../../../postgres/quote.ts';
import { lockTenant } from '../../move/lock-tenant.ts';
import { createTenantDatabase } from '../../provisioning/tenant-database.ts';
import { compatibleFrom } from '../../schema/schema-steps.ts';
import { headFingerprint } from '../../schema/template-fingerprint.ts';
import { findTenant } from '../../tenants/tenants.ts';
import { fillTenant, type RestorableData, requireKnownVersion } from '../side-tenant.ts';

/** A step of the restore of a lost database, in this order. */
export const lostSteps = ['take out of service', 'create database', 'fill database', 'serve'] as const;
type OnStep = (step: (typeof lostSteps)[number]) => void;

/** Within this time every process has received a change of the control database. */
const changeReceivedMs = 1_000;

/**
 * Restores the database of a tenant under its own name, when the server does not have it any more. Killed at any point,
 * the command is run again, also with other data:
 *
 *   L1 (begin) `tenants.restoring` marks a restore that has begun. It is set in the transaction that takes the tenant
 *   out
 *      of service, and cleared in the one that serves it again.
 *   L2 (nothing partial) Between the two, no process serves the tenant, and no migration and no backup touches it. So
 *      nobody reads, writes or archives a database that is not complete.
 *   L3 (no overwriting) A database that exists is only written to if a restore of it has begun.
 *
 * @throws {OperatorError} when the database exists, or another command works on the tenant
 */
export async function restoreLostTenant(
  installation: Installation,
  slug: string,
  data: RestorableData,
  onStep: OnStep = () => {},
): Promise<Tenant> {
  await requireKnownVersion(data.schemaVersion);
  return withConnection(installation.controlUrl, async control => {
    const { id } = await findTenant(installation, slug);
    await lockTenant(control, id, slug);
    const tenant = await findTenant(installation, slug);
    await requireLost(installation, tenant);
    onStep('take out of service');
    await begin(control, tenant, data);
    onStep('create database');
    await createTenantDatabase(installation, tenant);
    onStep('fill database');
    await fillTenant(installation, tenant, data);
    onStep('serve');
    await end(installation, control, tenant);
    return findTenant(installation, slug);
  });
}

/** @throws {OperatorError} when the server has the database, and no restore of it has begun */
export async function requireLost(
  { servers }: Installation,
  { slug, status, server, databaseName, restoring }: Tenant,
): Promise<void> {
  if (status === 'provisioning') throw new OperatorError(`${slug} is not completely provisioned: provision it again`);
  await withConnection(servers.adminUrl(server), async admin => {
    const { rows } = await admin.query<{ isBroken: boolean }>(
      'select datconnlimit = -2 as "isBroken" from pg_database where datname = $1',
      [databaseName],
    );
    if (rows[0]?.isBroken) await admin.query(`drop database ${quoteIdentifier(databaseName)} with (force)`);
    if (!rows[0] || rows[0].isBroken || restoring) return;
    throw new OperatorError(
      `Server ${server.name} has database ${databaseName} of ${slug}: nothing was changed. Restore beside it ` +
        `(--to <new-slug>), or rename it if it cannot be used: alter database ${quoteIdentifier(databaseName)} rename to …;`,
    );
  });
}

async function begin(control: pg.Client, { id }: Tenant, { description }: RestorableData): Promise<void> {
  await control.query(
    `update tenants set restoring = $2, schema_version = null, compatible_from = null, schema_fingerprint = null,
            updated_at = now()
      where id = $1`,
    [id, description],
  );
  const { rowCount } = await control.query(`select from processes where kind = 'service' limit 1`);
  if (rowCount) await sleep(changeReceivedMs);
}

async function end({ control, servers }: Installation, client: pg.Client, { id, server }: Tenant): Promise<void> {
  const migrations = await loadMigrations('tenant');
  const fingerprint = await headFingerprint(control, server, servers.adminUrl(server));
  await client.query(
    `update tenants set restoring = null, schema_version = $2, compatible_from = $3, schema_fingerprint = $4,
            updated_at = now()
      where id = $1`,
    [id, migrations.at(-1)?.name, compatibleFrom(migrations), fingerprint],
  );
}
