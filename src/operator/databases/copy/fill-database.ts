import type pg from 'pg';
import type { Server } from '../../../control/control-entities.ts';
import type { Installation } from '../../../control/installation.ts';
import { LaterBuildError } from '../../../control/later-build.ts';
import { tenantHead } from '../../../control/tenant-head.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { inTransaction } from '../../../lib/postgres/in-transaction.ts';
import { loadMigrations } from '../../../lib/postgres/migration-steps.ts';
import { differenceText } from '../../../lib/postgres/schema-fingerprint.ts';
import { createSchemaComparison } from '../../schema/schema-comparison.ts';
import {
  applyStep,
  compatibleFrom,
  readSchemaState,
  readSchemaSteps,
} from '../../schema/schema-steps.ts';
import { headFingerprint, migrationSettings } from '../../schema/template.ts';
import { canonicalTextSettings } from '../../schema/tenant-tables.ts';
import { changeInEpoch } from '../store/database-stamp.ts';
import type { DatabaseAddress, TenantDatabase } from '../store/database-store.ts';
import { type CompleteSchema, recordSchema } from '../store/exchange-databases.ts';

/**
 * Writes the data of a new database, which nobody else uses, and compares what it has written.
 */
export type Fill = (target: DatabaseAddress) => Promise<void>;

/** The data of a tenant at an earlier moment, and how to write it into a database. */
export interface EarlierData {
  /** The source, for people: `archive <name>`, or the moment of a recovered server. */
  readonly description: string;
  /** The last migration that the data has. */
  readonly schemaVersion: string;
  /** The size that a database with the data has, about. */
  readonly bytes: number;
  /**
   * Writes all rows into a database of that version in one transaction, and compares the
   * written rows.
   * @returns whether it had to change the schema, for additions by hand to the tenant's
   *   database
   */
  readonly fill: (target: pg.Client) => Promise<boolean>;
}

/**
 * Returns a function that writes earlier data into a database at the version of the data, and
 * brings the database to that of this build.
 */
export function fillWith(installation: Installation, data: EarlierData): Fill {
  return async ({ server, database }) => {
    const url = installation.servers.adminUrl(server, database);
    const settings = { ...migrationSettings(server), ...canonicalTextSettings };
    await withConnection(
      url,
      async target => {
        const isChanged = await data.fill(target);
        await inTransaction(target, () => applySteps(target, data.schemaVersion));
        if (!isChanged) await requireHeadSchema(installation, server, target);
      },
      { settings },
    );
  };
}

/**
 * Applies the steps that a database of an earlier version lacks, in the transaction of the
 * connection.
 */
async function applySteps(target: pg.Client, version: string | null): Promise<void> {
  const steps = await readSchemaSteps();
  for (const step of steps.slice(steps.findIndex(({ name }) => name === version) + 1)) {
    await applyStep(target, step);
  }
}

/** @throws {LaterBuildError} when this build does not know the schema version of the data */
export async function requireKnownVersion(version: string | null): Promise<void> {
  const migrations = await loadMigrations('tenant');
  if (!migrations.some(({ name }) => name === version)) {
    throw new LaterBuildError('The data', String(version));
  }
}

/**
 * @throws {OperatorError} that names each object in which the database differs from the
 *   template
 */
async function requireHeadSchema(
  { control, servers }: Installation,
  server: TenantDatabase['server'],
  client: pg.Client,
): Promise<void> {
  const head = await headFingerprint(control, server, servers.adminUrl(server));
  const differences = await createSchemaComparison(control, server, head)(client);
  if (differences.length > 0) {
    throw new OperatorError(
      `The database differs from the template of this build: ${differences.map(differenceText).join('; ')}`,
    );
  }
}

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

  await changeInEpoch(client, { epoch }, async () => {
    for (const [name, value] of Object.entries(migrationSettings(server))) {
      await client.query('select set_config($1, $2, true)', [name, value]);
    }
    // A killed run may have applied some of the migrations.
    const { applied } = await readSchemaState(client);
    // The control database may have lost the version that the run that filled the database has
    // recorded.
    await requireKnownVersion(schemaVersion ?? applied.at(-1) ?? null);

    await applySteps(client, applied.at(-1) ?? null);
  });
  await requireHeadSchema(installation, server, client);
  await recordSchema(control, target.id, await readHeadSchema(installation, server));
}

/** Returns the schema of a database on this server at the version of this build. */
export async function readHeadSchema(
  { control, servers }: Installation,
  server: Server,
): Promise<CompleteSchema> {
  const migrations = await loadMigrations('tenant');
  return {
    version: migrations.at(-1)?.name ?? null,
    compatibleFrom: compatibleFrom(migrations),
    fingerprint: await headFingerprint(control, server, servers.adminUrl(server)),
  };
}
