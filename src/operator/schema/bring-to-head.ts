import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import { ForeignSchemaError } from '../../control/foreign-schema.ts';
import type { Installation } from '../../control/installation.ts';
import { LaterBuildError } from '../../control/later-build.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { findForeignPage } from '../../lib/postgres/migration-names.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { holdImports } from '../../sales/imports/import-lock.ts';
import { SchemaDriftError } from './migration-failure.ts';
import type { SchemaComparison } from './schema-comparison.ts';
import {
  applyStep,
  changeSchema,
  readSchemaState,
  type SchemaState,
  type SchemaStep,
  versionOf,
} from './schema-steps.ts';
import { tenantGroup } from './template.ts';
import {
  retryOnLockTimeout,
  setSchemaVersion,
  takeOutOfService,
  withTenantConnection,
} from './tenant-schema.ts';
import { becomeMember } from './tenant-sessions.ts';

/** A server, and the schema that the databases of its tenants are compared with. */
export interface RunServer {
  server: Server;
  /** The fingerprint at head. */
  fingerprint: string;
  /** The comparison with the template. */
  comparison: SchemaComparison;
}

/** The data of a run that the migrations of all its tenants use. */
export interface SchemaRun {
  id: number;
  installation: Installation;
  /** Holds the locks of the run and of its tenants. */
  control: Queryable;
  /** The pool through which the outcomes of tenants are written. */
  controlPool: Queryable;
  steps: SchemaStep[];
  head: string;
  /** The servers that had tenants when the run began, by id. */
  servers: Map<number, RunServer>;
  /**
   * The time by `performance.now()` at which every process has received that the tenants so far
   * were taken out of service.
   */
  receivedAt: number;
}

/** A tenant as the control database records it. */
export interface TenantRow {
  id: number;
  guid: string;
  /** The server that the tenant is on now: it may have been moved since the run began. */
  serverId: number;
  databaseName: string;
  roleName: string;
  schemaVersion: string | null;
  schemaFingerprint: string | null;
}

interface LocatedTenant extends TenantRow, RunServer {}

/**
 * Runs the pending migrations of a tenant's database and compares it with the template. If they
 * differ, everything is rolled back.
 * @returns true if the database had pending migrations
 */
export async function bringToHead(run: SchemaRun, tenant: LocatedTenant): Promise<boolean> {
  return withTenantConnection(run.installation, tenant, async database =>
    bringStateToHead(run, tenant, database, await readSchemaState(database)),
  );
}

function pendingSteps({ steps }: SchemaRun, { applied }: SchemaState): SchemaStep[] {
  return steps.filter(({ name }) => !applied.includes(name));
}

/**
 * @param state of the database
 * @returns as `bringToHead`
 */
async function bringStateToHead(
  run: SchemaRun,
  tenant: LocatedTenant,
  database: pg.Client,
  state: SchemaState,
): Promise<boolean> {
  const { controlPool } = run;
  if (state.guid === null) {
    throw new OperatorError('the database does not say whose it is: see bin/backoffice doctor');
  }
  if (state.guid !== tenant.guid) throw new OperatorError('the database belongs to another tenant');
  const foreign = await findForeignPage('tenant', state.recorded);
  if (foreign !== undefined) {
    throw new ForeignSchemaError('its database', foreign, run.installation.dataFolder);
  }
  const unknown = state.applied.find(name => !run.steps.some(step => step.name === name));
  if (unknown) {
    throw new LaterBuildError('its database', unknown);
  }

  const pending = pendingSteps(run, state);
  if (pending.length > 0) await holdImports(database);
  let found: SchemaState | undefined;
  if (pending.length === 0) {
    await compare(tenant, database);
  } else if (tenant.schemaVersion && pending.every(({ compatible }) => compatible)) {
    found = await retryOnLockTimeout(() => apply(run, tenant, database, state, true));
  } else {
    await becomeMember(database, tenant.roleName); // the only step that can be refused comes first
    const receivedAt = await takeOutOfService(controlPool, database, tenant);
    // Other tenants may have been taken out of service since: the later time counts.
    run.receivedAt = Math.max(run.receivedAt, receivedAt);
    try {
      found = await retryOnLockTimeout(() => apply(run, tenant, database, state));
    } catch (error) {
      // The database is at its earlier version again; the control database gets that version
      // back.
      const restored = await readSchemaState(database).catch(() => undefined);
      if (restored) {
        await setSchemaVersion(controlPool, tenant.id, versionOf(restored.applied, run.steps));
      }
      throw error;
    }
  }
  // The last statements of a killed run changed the database after its state was read: it
  // begins anew with the present state.
  if (found) await bringStateToHead(run, tenant, database, found);
  return pending.length > 0;
}

/** @returns the state of the database, if it is not `state`; nothing was changed then */
function apply(
  run: SchemaRun,
  tenant: LocatedTenant,
  database: pg.Client,
  state: SchemaState,
  compatible = false,
): Promise<SchemaState | undefined> {
  return changeSchema(database, {
    role: tenant.roleName,
    state,
    change: async () => {
      for (const step of pendingSteps(run, state)) await applyStep(database, step);
    },
    check: () => compare(tenant, database),
    compatible,
  });
}

/**
 * @throws {SchemaDriftError} that names each object in which the database differs from the
 *   template
 */
async function compare({ comparison, server }: LocatedTenant, database: pg.Client): Promise<void> {
  const differences = await comparison(database);
  if (differences.length > 0) throw new SchemaDriftError(differences, tenantGroup(server));
}
