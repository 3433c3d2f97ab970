import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import { loadMigrations } from '../../postgres/migration-steps.ts';
import { createSchemaComparison } from '../schema/schema-comparison.ts';
import { applyStep, readSchemaSteps } from '../schema/schema-steps.ts';
import { canonicalTextSettings } from '../schema/table-checksums.ts';
import { migrationSettings } from '../schema/template.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import type { TenantDatabase } from './database-store.ts';

/** Writes the data of a new database, which nobody else uses, and compares what it has written. */
export type Fill = (target: FillTarget) => Promise<void>;
export type FillTarget = Pick<TenantDatabase, 'server' | 'database'>;

/** The data of a tenant at an earlier moment, and how to write it into a database. */
export interface EarlierData {
  /** For people: `archive <id> of <time>`, or `<time>`. */
  readonly description: string;
  /** The last migration that the data has. */
  readonly schemaVersion: string;
  /** Writes all rows into a database of that version in one transaction, and compares what it has written. */
  readonly fill: (target: pg.Client) => Promise<void>;
}

/** Returns what writes earlier data into a database at the version of the data, and brings it to that of this build. */
export function fillWith(installation: Installation, data: EarlierData): Fill {
  return async ({ server, database }) => {
    const url = installation.servers.adminUrl(server, database);
    const settings = { ...migrationSettings(server), ...canonicalTextSettings };
    await withConnection(
      url,
      async target => {
        await data.fill(target);
        await inTransaction(target, () => applySteps(target, data.schemaVersion));
        await requireHeadSchema(installation, server, target);
      },
      { settings },
    );
  };
}

/** Applies the steps that a database of an earlier version lacks, in the transaction of the connection. */
export async function applySteps(target: pg.Client, version: string | null): Promise<void> {
  const steps = await readSchemaSteps();
  for (const step of steps.slice(steps.findIndex(({ name }) => name === version) + 1)) await applyStep(target, step);
}

/** @throws {OperatorError} when this build does not know the schema version of the data */
export async function requireKnownVersion(version: string | null): Promise<void> {
  const migrations = await loadMigrations('tenant');
  if (!migrations.some(({ name }) => name === version))
    throw new OperatorError(`The data is of version ${version}, which this build does not know: use the newer build`);
}

/** @throws {OperatorError} that names the first object in which the database differs from the template */
export async function requireHeadSchema(
  { control, servers }: Installation,
  server: TenantDatabase['server'],
  client: pg.Client,
): Promise<void> {
  const head = await headFingerprint(control, server, servers.adminUrl(server));
  const difference = await createSchemaComparison(control, server, head).difference(client);
  if (difference !== undefined)
    throw new OperatorError(`The database differs from the template of this build: ${difference}`);
}
