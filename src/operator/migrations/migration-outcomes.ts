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

/** Marks a tenant as running in a run. */
export async function beginOutcome(control: Queryable, run: number, tenant: number): Promise<void> {
  await control.query(
    `update migration_outcomes set state = 'running', started_at = now() where run_id = $1 and tenant_id = $2`,
    [run, tenant],
  );
}

/**
 * Records the result of a run for one tenant.
 * @param schema the new schema of the tenant's database, if it has changed; both are written in one transaction
 */
export async function recordOutcome(
  control: Queryable,
  run: number,
  tenant: number,
  { state, from, to, ms, error }: TenantResult,
  schema?: { version: string; compatibleFrom?: string | null; fingerprint: string | undefined },
): Promise<void> {
  await control.query(
    `with tenant as (
       update tenants set schema_version = $8::text, schema_fingerprint = $9, compatible_from = $10, updated_at = now()
        where id = $2 and $8::text is not null
     )
     update migration_outcomes
        set state = $3, from_version = $4, to_version = $5, ms = $6, error = $7, finished_at = now()
      where run_id = $1 and tenant_id = $2`,
    [run, tenant, state, from, to, ms, error, schema?.version, schema?.fingerprint, schema?.compatibleFrom],
  );
}

/** Returns an SQL expression: the outcome of a tenant in the newest run that reached it. `tenant` is SQL for its id. */
export function lastOutcomeSql(tenant: string): string {
  return `(select l.state from migration_outcomes l
            where l.tenant_id = ${tenant} and l.state in ('migrated', 'current', 'failed')
            order by run_id desc limit 1)`;
}
