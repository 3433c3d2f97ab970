import type { OutcomeState } from '../../control/migration-run.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';

/** The result of a run for one tenant. `from` and `to` are schema versions; null is unknown. */
export interface TenantResult {
  state: OutcomeState;
  from: string | null;
  to: string | null;
  ms: number;
  error?: string;
}

/** SQL for the outcome of the tenant `t` in the newest run that reached it. */
export const lastOutcome = `(select l.state from migration_outcomes l
                              where l.tenant_id = t.id and l.state in ('migrated', 'current', 'failed')
                              order by run_id desc limit 1)`;

/** Records that a run works on a tenant. */
export async function recordRunning(control: Queryable, run: number, tenant: number): Promise<void> {
  await control.query(
    `update migration_outcomes set state = 'running', started_at = now() where run_id = $1 and tenant_id = $2`,
    [run, tenant],
  );
}

/** The new schema of a tenant's database. */
interface RecordedSchema {
  version: string;
  compatibleFrom: string | null;
  fingerprint: string | undefined;
}

/**
 * Records the result of a run for a tenant.
 * @param schema written in the same transaction, if it has changed
 */
export async function recordOutcome(
  control: Queryable,
  run: number,
  tenant: number,
  { state, from, to, ms, error }: TenantResult,
  schema?: RecordedSchema,
): Promise<void> {
  await control.query(
    `with changed as (
       update tenants set schema_version = $8, compatible_from = $9, schema_fingerprint = $10, updated_at = now()
        where id = $2 and $8::text is not null
     )
     update migration_outcomes
        set state = $3, from_version = $4, to_version = $5, ms = $6, error = $7, finished_at = now()
      where run_id = $1 and tenant_id = $2`,
    [run, tenant, state, from, to, ms, error, schema?.version, schema?.compatibleFrom, schema?.fingerprint],
  );
}
