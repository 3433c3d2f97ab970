import { controlHead } from '../../control/control-version.ts';
import type { ControlStatements } from '../../control/installation.ts';
import { tenantHead } from '../../control/tenant-head.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { type FleetHealth, readFleetHealth } from '../registry/read-tenants.ts';
import { listRuns, type RunOutcome, type RunSummary, runOutcomes } from './list-runs.ts';
import { closeAbandonedRuns } from './migration-runs.ts';
import { type RunningService, runningServices } from './running-services.ts';

export interface FleetStatus {
  /** The schema version of this build. */
  head: string;
  /** The number of tenants by schema version and status. */
  fleet: { schemaVersion: string | null; status: string; tenants: number }[];
  /** The number of tenants by health. */
  health: FleetHealth['counts'];
  /** The time at which doctor last checked all of them; null: never. */
  checkedAt: FleetHealth['checkedAt'];
  /** The tenants that failed in the newest run that reached them: those of `--retry-failed`. */
  failing: { slug: string; version: string | null; run: number; error: string }[];
  /**
   * The last run, with the outcomes of the tenants that failed in it; null before the first
   * run.
   */
  lastRun: (RunSummary & { failures: RunOutcome[] }) | null;
  /**
   * The running processes whose build is older than the control database, or that have not
   * registered it yet: meanwhile nothing is made that their build does not know
   * (`requireNoFormerBuild`). `head` is their last migration of the control database.
   */
  formerBuilds: RunningService[];
}

/**
 * Reads the versions of the fleet and the outcome of the last run. Ends the runs whose process
 * is gone.
 */
export async function fleetStatus({
  statements,
  controlUrl,
}: ControlStatements & { readonly controlUrl: string }): Promise<FleetStatus> {
  await withConnection(controlUrl, closeAbandonedRuns);
  const fleet = await countFleet({ statements });
  const { counts: health, checkedAt } = await readFleetHealth({ statements }, 0);
  const { failing } = await readFailingTenants({ statements });
  const [run] = await listRuns({ statements }, 1);
  const lastRun = run
    ? { ...run, failures: await runOutcomes({ statements }, run.id, run.outcomes.failed ?? 0) }
    : null;
  const services = await runningServices({ statements }, 'control');
  const newest = await controlHead();
  const formerBuilds = services.filter(({ head }) => head === null || head < newest);
  return { head: await tenantHead(), fleet, health, checkedAt, failing, lastRun, formerBuilds };
}

/** Returns the number of tenants by schema version and state. */
export async function countFleet({ statements }: ControlStatements): Promise<FleetStatus['fleet']> {
  const { rows } = await statements.query<FleetStatus['fleet'][number]>(
    `select schema_version as "schemaVersion", status, count(*)::int as tenants
       from tenants group by 1, 2 order by 1 desc nulls last, 2`,
  );

  return rows;
}

/**
 * Returns the tenants that failed in the newest run that reached them, by slug, and how many
 * there are.
 * @param part which of them are returned: all, or at most so many after the first ones
 */
export async function readFailingTenants(
  { statements }: ControlStatements,
  { limit, offset = 0 }: { limit?: number; offset?: number } = {},
): Promise<Pick<FleetStatus, 'failing'> & { total: number }> {
  const { rows } = await statements.query<FleetStatus['failing'][number] & { total: number }>(
    `select slug, version, run::int, error, total
       from (select id, slug, schema_version as version, run, count(*) over ()::int as total
               from (select tenant_id, max(run_id) as run from migration_outcomes where state = 'failed' group by 1) f
               join tenants on id = tenant_id
              where not exists (select from migration_outcomes later where later.tenant_id = id and later.run_id > run
                                   and later.state in ('migrated', 'current'))
              order by slug limit $1 offset $2) failing
       join migration_outcomes on tenant_id = id and run_id = run order by slug`,
    [limit ?? null, offset],
  );
  return { failing: rows.map(({ total: _, ...failing }) => failing), total: rows[0]?.total ?? 0 };
}
