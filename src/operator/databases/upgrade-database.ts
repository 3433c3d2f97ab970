import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';
import { compatibleFrom, readSchemaState } from '../schema/schema-steps.ts';
import { migrationSettings } from '../schema/template.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { changeInEpoch } from './database-stamp.ts';
import type { TenantDatabase } from './database-store.ts';
import { type CompleteSchema, recordSchema } from './exchange-databases.ts';
import { applySteps, requireHeadSchema, requireKnownVersion } from './fill-database.ts';

/**
 * Brings a database that is filled or kept to the version of this build, and records that.
 * @param client connected to it
 * @throws {OperatorError} when this build does not know its version
 * @throws {RunReplacedError} when a later run has claimed it
 */
export async function upgradeDatabase(
  installation: Installation,
  control: pg.Client,
  client: pg.Client,
  { target, epoch }: { target: TenantDatabase; epoch: number },
): Promise<void> {
  const { schemaVersion, server } = target;
  if (schemaVersion === (await tenantHead())) return;
  await requireKnownVersion(schemaVersion);
  await changeInEpoch(client, { epoch }, async () => {
    for (const [name, value] of Object.entries(migrationSettings(server)))
      await client.query('select set_config($1, $2, true)', [name, value]);
    const { applied } = await readSchemaState(client); // a killed run may have done it
    await applySteps(client, applied.at(-1) ?? null);
  });
  await requireHeadSchema(installation, server, client);
  await recordSchema(control, target.id, await readHeadSchema(installation, server));
}

/** Returns the schema of a database on this server at the version of this build. */
export async function readHeadSchema({ control, servers }: Installation, server: Server): Promise<CompleteSchema> {
  const migrations = await loadMigrations('tenant');
  return {
    version: migrations.at(-1)?.name ?? null,
    compatibleFrom: compatibleFrom(migrations),
    fingerprint: await headFingerprint(control, server, servers.adminUrl(server)),
  };
}
