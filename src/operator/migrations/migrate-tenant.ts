import type pg from 'pg';
import { Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { lockSpaces } from '../../postgres/advisory-locks.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { errorText } from '../error-text.ts';
import { applyStep, changeSchema, compatibleFrom, readSchemaState, type SchemaStep } from '../schema/schema-steps.ts';
import { headObjects } from '../schema/template-fingerprint.ts';
import {
  retryOnLockTimeout,
  setSchemaVersion,
  takeOutOfService,
  withTenantConnection,
} from '../schema/tenant-schema.ts';
import { beginOutcome, recordOutcome, type TenantResult } from './migration-outcomes.ts';
import type { Candidate } from './migration-runs.ts';

/** The data of a run that the migrations of all its tenants use. */
export interface Run {
  id: number;
  installation: Installation;
  /** The connection to the control database that holds the locks of the run and of its tenants. */
  locks: Queryable;
  /** Writes versions and outcomes to the control database. */
  controlPool: Queryable;
  steps: SchemaStep[];
  head: string;
  /** The fingerprints at head, by the id of the server. */
  fingerprints: Map<number, string>;
  /**
   * The time by `performance.now()` at which every process has received that the tenants so far were taken out of
   * service.
   */
  receivedAt: number;
}

/**
 * Brings one tenant's database to head and compares it with the template. If they differ, everything is rolled back.
 *
 * No request is ever served on a schema that does not fit the build:
 * 1. Before the database changes, the control database loses the tenant's version. A process that has received that
 *    change responds to the tenant's requests with 503 and serves nothing from memory. Every process receives it within
 *    a second.
 * 2. The change locks the identity of the database. A new connection reads it before it serves a request, so it waits
 *    until the change has ended, and then finds another version than its own and serves nothing.
 * 3. Under that lock the sessions of the tenant end (`changeSchema`). So by 2, no request, however long ago it began,
 *    uses a connection on the new schema that was verified on the old one.
 * 4. After the database has changed, the control database gets the new version.
 * 5. A run ends only after every process has received the change of step 1 for each tenant. No process then serves a
 *    cached response of the old schema.
 * If the process of the run is killed in between, the tenant has no version and gets 503 until the next run.
 *
 * If every pending migration is compatible, each build that serves the tenant can go on with the new schema: the tenant
 * stays in service, and only step 4 remains.
 *
 * @returns `busy` if another process works on the tenant; undefined if the tenant is at head or was purged
 */
export async function migrateTenant(run: Run, { id, serverId }: Candidate): Promise<TenantResult | 'busy' | undefined> {
  const { locks, controlPool, installation, head } = run;
  const { rows } = await locks.query<{ locked: boolean }>('select pg_try_advisory_lock($1, $2) as locked', [
    lockSpaces.tenant,
    id,
  ]);
  if (!rows[0]?.locked) return 'busy';
  try {
    const startedAt = performance.now();
    const elapsed = () => Math.round(performance.now() - startedAt);
    const tenant = await installation.control.em.fork().findOne(Tenant, { id }, { populate: ['server'] });
    if (!tenant) return undefined; // it has been purged
    const from = tenant.schemaVersion ?? null;
    if (from === head && tenant.schemaFingerprint === run.fingerprints.get(serverId)) {
      await recordOutcome(controlPool, run.id, id, { state: 'current', from, to: head, ms: elapsed() });
      return undefined;
    }
    const fingerprint = run.fingerprints.get(serverId);
    return await bringToHead(run, tenant).then(
      async migrated => {
        const state = migrated || from !== head ? 'migrated' : 'current';
        const result: TenantResult = { state, from, to: head, ms: elapsed() };
        await recordOutcome(controlPool, run.id, id, result, {
          version: head,
          compatibleFrom: compatibleFrom(run.steps),
          fingerprint,
        });
        return result;
      },
      async (error: unknown) => {
        const result: TenantResult = { state: 'failed', from, to: from, ms: elapsed(), error: errorText(error) };
        await recordOutcome(controlPool, run.id, id, result);
        return result;
      },
    );
  } finally {
    await locks.query('select pg_advisory_unlock($1, $2)', [lockSpaces.tenant, id]);
  }
}

/** @returns true if the database had pending migrations */
async function bringToHead(run: Run, tenant: Tenant): Promise<boolean> {
  const { controlPool, steps } = run;
  return withTenantConnection(run.installation, tenant, async database => {
    const { guid, applied } = await readSchemaState(database);
    if (guid !== null && guid !== tenant.guid) throw new OperatorError('the database belongs to another tenant');
    const unknown = applied.find(name => !steps.some(step => step.name === name));
    if (unknown) throw new OperatorError(`its database has migration ${unknown}, which this build does not know`);

    const pending = steps.filter(({ name }) => !applied.includes(name));
    if (pending.length === 0) {
      await compare(run, tenant, database);
    } else if (tenant.schemaVersion && pending.every(({ compatible }) => compatible)) {
      await beginOutcome(controlPool, run.id, tenant.id);
      await retryOnLockTimeout(() => apply(run, tenant, database, pending, true));
    } else {
      run.receivedAt = Math.max(run.receivedAt, await takeOutOfService(controlPool, database, tenant, run.id));
      try {
        await retryOnLockTimeout(() => apply(run, tenant, database, pending));
      } catch (error) {
        // The database is at its earlier version again; the control database gets that version back.
        const restored = await readSchemaState(database).catch(() => undefined);
        if (restored) await setSchemaVersion(controlPool, tenant.id, restored.applied.at(-1) ?? null);
        throw error;
      }
    }
    return pending.length > 0;
  });
}

async function apply(
  run: Run,
  tenant: Tenant,
  database: pg.Client,
  pending: SchemaStep[],
  compatible = false,
): Promise<void> {
  await changeSchema(database, {
    role: tenant.roleName,
    change: async applied => {
      for (const step of pending) if (!applied.includes(step.name)) await applyStep(database, step);
    },
    check: () => compare(run, tenant, database),
    compatible,
  });
}

/** @throws {OperatorError} that names the first object in which the database differs from the template */
async function compare(run: Run, { server }: Tenant, database: pg.Client): Promise<void> {
  if ((await fingerprint(database)) === run.fingerprints.get(server.id)) return;
  const difference = firstDifference(
    await schemaObjects(database),
    await headObjects(run.installation.control, server),
  );
  throw new OperatorError(`its schema differs from the template: ${difference}`);
}
