import type pg from 'pg';
import type { Server } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { sqlState } from '../../postgres/database-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import type { OutcomeRecorder } from './outcome-recorder.ts';
import type { SchemaComparison } from './schema-comparison.ts';
import {
  applyStep,
  changeSchema,
  readSchemaState,
  type SchemaState,
  type SchemaStep,
  versionOf,
} from './schema-steps.ts';
import type { TenantLocks, TenantRow } from './tenant-locks.ts';
import { retryOnLockTimeout, setSchemaVersion, takeOutOfService, withTenantConnection } from './tenant-schema.ts';
import { becomeMember } from './tenant-sessions.ts';

/** The data of a run that the migrations of all its tenants use. */
export interface Run {
  id: number;
  installation: Installation;
  locks: TenantLocks;
  /** Takes tenants out of service in the control database. */
  controlPool: Queryable;
  outcomes: OutcomeRecorder;
  steps: SchemaStep[];
  head: string;
  /** The servers of the tenants, by id. */
  servers: Map<number, Server>;
  /** The fingerprints at head, by the id of the server. */
  fingerprints: Map<number, string>;
  /** The comparisons with the template, by the id of the server. */
  comparisons: Map<number, SchemaComparison>;
  /**
   * The time by `performance.now()` at which every process has received that the tenants so far were taken out of
   * service.
   */
  receivedAt: number;
  /** The number of tenants that have failed. */
  failures: number;
}

/** A tenant as the control database records it. */
export interface RecordedTenant extends TenantRow {
  server: Server;
}

/**
 * Runs the pending migrations of a tenant's database and compares it with the template. If they differ, everything is
 * rolled back.
 * @returns true if the database had pending migrations
 */
export async function bringToHead(run: Run, tenant: RecordedTenant): Promise<boolean> {
  return withTenantConnection(run.installation, tenant, async database => {
    const recorded = recordedState(run, tenant);
    const pending = recorded ? pendingSteps(run, recorded) : [];
    if (recorded && pending.length > 0 && pending.every(({ compatible }) => compatible)) {
      run.outcomes.begin(tenant.id);
      const found = await retryOnLockTimeout(() => apply(run, tenant, database, recorded, true)).catch(error => {
        if (sqlState(error) !== '42P01') throw error; // a table that every tenant has is missing
        return 'unknown';
      });
      if (!found) return true;
    }
    return bringStateToHead(run, tenant, database, await readSchemaState(database));
  });
}

/** The state that the database has unless something outside of runs has changed it; undefined if that is not known. */
function recordedState({ steps }: Run, { guid, schemaVersion }: RecordedTenant): SchemaState | undefined {
  const index = steps.findIndex(({ name }) => name === schemaVersion);
  return index < 0 ? undefined : { guid, applied: steps.slice(0, index + 1).map(({ name }) => name) };
}

function pendingSteps({ steps }: Run, { applied }: SchemaState): SchemaStep[] {
  return steps.filter(({ name }) => !applied.includes(name));
}

/** @param state of the database @returns as `bringToHead` */
async function bringStateToHead(
  run: Run,
  tenant: RecordedTenant,
  database: pg.Client,
  state: SchemaState,
): Promise<boolean> {
  const { controlPool } = run;
  if (state.guid !== null && state.guid !== tenant.guid)
    throw new OperatorError('the database belongs to another tenant');
  const unknown = state.applied.find(name => !run.steps.some(step => step.name === name));
  if (unknown) throw new OperatorError(`its database has migration ${unknown}, which this build does not know`);

  const pending = pendingSteps(run, state);
  let found: SchemaState | undefined;
  if (pending.length === 0) {
    await compare(run, tenant, database);
  } else if (tenant.schemaVersion && pending.every(({ compatible }) => compatible)) {
    run.outcomes.begin(tenant.id);
    found = await retryOnLockTimeout(() => apply(run, tenant, database, state, true));
  } else {
    await becomeMember(database, tenant.roleName); // the only step that can be refused comes first
    run.receivedAt = Math.max(run.receivedAt, await takeOutOfService(controlPool, database, tenant, run.id));
    try {
      found = await retryOnLockTimeout(() => apply(run, tenant, database, state));
    } catch (error) {
      // The database is at its earlier version again; the control database gets that version back.
      const restored = await readSchemaState(database).catch(() => undefined);
      if (restored) await setSchemaVersion(controlPool, tenant.id, versionOf(restored.applied, run.steps));
      throw error;
    }
  }
  // A killed run had changed the database after its state was read: its last statements went on without it.
  if (found) await bringStateToHead(run, tenant, database, found);
  return pending.length > 0;
}

/** @returns the state of the database, if it is not `state`; nothing was changed then */
function apply(
  run: Run,
  tenant: RecordedTenant,
  database: pg.Client,
  state: SchemaState,
  compatible = false,
): Promise<SchemaState | undefined> {
  return changeSchema(database, {
    role: tenant.roleName,
    state,
    change: () => Promise.all(pendingSteps(run, state).map(step => applyStep(database, step))),
    check: () => compare(run, tenant, database),
    compatible,
  });
}

/** @throws {OperatorError} that names the first object in which the database differs from the template */
async function compare(run: Run, { server }: RecordedTenant, database: pg.Client): Promise<void> {
  const comparison = run.comparisons.get(server.id);
  if (!comparison) throw new OperatorError(`there is no template of server ${server.name}`);
  const difference = await comparison.difference(database);
  if (difference !== undefined) throw new OperatorError(`its schema differs from the template: ${difference}`);
}
