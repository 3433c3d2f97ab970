import type { OutcomeState } from '../../control/migration-run.ts';

/** The result of a run for one tenant. `from` and `to` are schema versions; null is unknown. */
export interface TenantResult {
  state: OutcomeState;
  from: string | null;
  to: string | null;
  ms: number;
  error?: string;
}

/** Returns an SQL expression: the outcome of a tenant in the newest run that reached it. `tenant` is SQL for its id. */
export function lastOutcomeSql(tenant: string): string {
  return `(select l.state from migration_outcomes l
            where l.tenant_id = ${tenant} and l.state in ('migrated', 'current', 'failed')
            order by run_id desc limit 1)`;
}
