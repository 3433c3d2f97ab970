import { withConnection } from '../../postgres/connection.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import { shareConnection } from '../../postgres/shared-connection.ts';
import type { Statements } from '../../postgres/statements.ts';
import type { RunSummary } from './list-runs.ts';
import { lastOutcomeSql } from './migration-outcomes.ts';
import { closeAbandonedRuns } from './migration-runs.ts';
import { tenantHead } from './tenant-head.ts';

export interface FleetStatus {
  /** The schema version of this build. */
  head: string;
  /** The number of tenants by schema version and status. */
  fleet: { schemaVersion: string | null; status: string; tenants: number }[];
  /** The tenants that failed in the newest run that reached them: those of `--retry-failed`. */
  failing: { slug: string; version: string | null; run: number; error: string }[];
  /** Null before the first run. */
  lastRun: LastRun | null;
}

interface LastRun extends Omit<RunSummary, 'tenants'> {
  failures: { slug: string; from: string | null; error: string }[];
}

/** Reads the versions of the fleet and the outcome of the last run. */
export async function fleetStatus({
  statements,
  controlUrl,
}: {
  readonly statements: Statements;
  readonly controlUrl: string;
}): Promise<FleetStatus> {
  await withConnection(controlUrl, client => closeAbandonedRuns(shareConnection(client)));
  const fleet = await statements.execute<FleetStatus['fleet']>(
    `select schema_version as "schemaVersion", status, count(*)::int as tenants
       from tenants group by 1, 2 order by 1 desc nulls last, 2`,
  );
  const failing = await statements.execute<FleetStatus['failing']>(
    `select slug, schema_version as version, o.run_id::int as run, o.error from tenants t
       join lateral (select run_id, error from migration_outcomes where tenant_id = t.id and state = 'failed'
                      order by run_id desc limit 1) o on true
      where ${lastOutcomeSql('t.id')} = 'failed' order by slug`,
  );
  const [run] = await statements.execute<Omit<LastRun, 'outcomes' | 'failures'>[]>(
    `select id::float8, state, head, requested_by as "requestedBy", ${isoTime('started_at')} as "startedAt",
            ${isoTime('finished_at')} as "finishedAt"
       from migration_runs r order by r.id desc limit 1`,
  );
  if (!run) return { head: await tenantHead(), fleet, failing, lastRun: null };

  const outcomes = await statements.execute<{ state: string; tenants: number }[]>(
    'select state, count(*)::int as tenants from migration_outcomes where run_id = ? group by state order by state',
    [run.id],
  );
  const failures = await statements.execute<LastRun['failures']>(
    `select slug, from_version as "from", error from migration_outcomes join tenants on id = tenant_id
      where run_id = ? and state = 'failed' order by slug`,
    [run.id],
  );
  const lastRun = {
    ...run,
    outcomes: Object.fromEntries(outcomes.map(({ state, tenants }) => [state, tenants])),
    failures,
  };
  return { head: await tenantHead(), fleet, failing, lastRun };
}
