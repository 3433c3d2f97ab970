import type pg from 'pg';
import { Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { lockSpaces } from '../../postgres/advisory-locks.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { errorText } from '../error-text.ts';
import { applyStep, changeSchema, readSchemaState, type SchemaStep } from '../schema/schema-steps.ts';
import { headObjects } from '../schema/template-fingerprint.ts';
import {
  retryOnLockTimeout,
  setSchemaVersion,
  takeOutOfService,
  withTenantConnection,
} from '../schema/tenant-schema.ts';
import { type Candidate, recordOutcome, type TenantResult } from './migration-runs.ts';

/** What all tenants of a run share. */
export interface Run {
  id: number;
  installation: Installation;
  /** Holds the locks of the run and of its tenants. */
  locks: Queryable;
  books: Queryable;
  steps: SchemaStep[];
  head: string;
  /** At head, by the id of the server. */
  fingerprints: Map<number, string>;
}

/**
 * Brings one tenant's database to head and compares it with the template; nothing of it stays when they differ.
 *
 * No request is ever served on a schema that does not fit it, because the control database says so first: it has no
 * version for the tenant from before the database changes until after it has changed (503), and whoever has open
 * connections is given the time to hear of it. Killed in between, the tenant stays that way until the next run.
 *
 * @returns `busy` when somebody else works on the tenant, undefined when there is nothing to do (any more)
 */
export async function migrateTenant(run: Run, { id, serverId }: Candidate): Promise<TenantResult | 'busy' | undefined> {
  const { locks, books, installation, head } = run;
  const { rows } = await locks.query<{ locked: boolean }>('select pg_try_advisory_lock($1, $2) as locked', [
    lockSpaces.tenant,
    id,
  ]);
  if (!rows[0]?.locked) return 'busy';
  try {
    const startedAt = performance.now();
    const elapsed = () => Math.round(performance.now() - startedAt);
    const tenant = await installation.control.em.fork().findOne(Tenant, { id }, { populate: ['server'] });
    if (!tenant) return undefined; // purged meanwhile
    const from = tenant.schemaVersion ?? null;
    if (from === head && tenant.schemaFingerprint === run.fingerprints.get(serverId)) {
      await recordOutcome(books, run.id, id, { state: 'current', from, to: head, ms: elapsed() });
      return undefined;
    }
    const fingerprint = run.fingerprints.get(serverId);
    return await bringToHead(run, tenant).then(
      async migrated => {
        const state = migrated || from !== head ? 'migrated' : 'current';
        const result: TenantResult = { state, from, to: head, ms: elapsed() };
        await recordOutcome(books, run.id, id, result, { version: head, fingerprint });
        return result;
      },
      async (error: unknown) => {
        const result: TenantResult = { state: 'failed', from, to: from, ms: elapsed(), error: errorText(error) };
        await recordOutcome(books, run.id, id, result);
        return result;
      },
    );
  } finally {
    await locks.query('select pg_advisory_unlock($1, $2)', [lockSpaces.tenant, id]);
  }
}

/** @returns whether there was anything to migrate */
async function bringToHead(run: Run, tenant: Tenant): Promise<boolean> {
  const { books, steps } = run;
  return withTenantConnection(run.installation, tenant, async database => {
    const { guid, applied } = await readSchemaState(database);
    if (guid !== null && guid !== tenant.guid) throw new OperatorError('the database belongs to another tenant');
    const unknown = applied.find(name => !steps.some(step => step.name === name));
    if (unknown) throw new OperatorError(`its database has ${unknown}, which this build does not know`);

    const pending = steps.filter(({ name }) => !applied.includes(name));
    if (pending.length === 0) {
      await compare(run, tenant, database);
    } else {
      await takeOutOfService(books, database, tenant, run.id);
      try {
        await retryOnLockTimeout(() => apply(run, tenant, database, pending));
      } catch (error) {
        // What is in the database now, which is what it had before.
        const left = await readSchemaState(database).catch(() => undefined);
        if (left) await setSchemaVersion(books, tenant.id, left.applied.at(-1) ?? null);
        throw error;
      }
    }
    return pending.length > 0;
  });
}

async function apply(run: Run, tenant: Tenant, database: pg.Client, pending: SchemaStep[]): Promise<void> {
  await changeSchema(
    database,
    async applied => {
      for (const step of pending) if (!applied.includes(step.name)) await applyStep(database, step);
    },
    () => compare(run, tenant, database),
  );
}

/** @throws {OperatorError} naming the first object in which the database differs from the template */
async function compare(run: Run, { server }: Tenant, database: pg.Client): Promise<void> {
  if ((await fingerprint(database)) === run.fingerprints.get(server.id)) return;
  const difference = firstDifference(
    await schemaObjects(database),
    await headObjects(run.installation.control, server),
  );
  throw new OperatorError(`its schema differs from the template: ${difference}`);
}
