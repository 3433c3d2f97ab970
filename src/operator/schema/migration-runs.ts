import type { ControlStatements } from '../../control/installation.ts';
import type { OutcomeState, RunState } from '../../control/migration-run.ts';
import { lockSpaces, releaseLock, tryLock } from '../../lib/postgres/advisory-locks.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { operatorName } from '../command/operator-name.ts';
import { requireFound } from '../registry/read-tenants.ts';
import type { MigrationFailure } from './migration-failure.ts';

/** The options of a run. */
export interface RunRequest {
  /** The slugs of the chosen tenants; undefined: all tenants. */
  slugs?: string[] | undefined;
  /** True for the tenants that failed in the newest run that reached them, and no others. */
  retryFailed?: boolean | undefined;
  /** The number of tenants that are migrated at a time on each server. */
  concurrency?: number | undefined;
  /** The number of tenants that are migrated first. If one of them fails, the run is halted. */
  canary?: number | undefined;
  /** The number of failed tenants that halts the run. */
  maxFailures?: number | undefined;
}

/** A tenant of a run, as it was when the run began. */
export interface MigrationCandidate {
  id: number;
  slug: string;
  serverId: number;
  /**
   * True if the control database has the version and the fingerprint of head for this tenant.
   */
  atHead: boolean;
}

/**
 * Begins a run: inserts its row, and an outcome row for each of its tenants, in one statement.
 * The run counts as running while `client` is connected and holds the run's lock.
 * @param servers by id, with their fingerprints at head
 */
export async function beginRun(
  client: Queryable,
  head: string,
  servers: ReadonlyMap<number, { readonly fingerprint: string }>,
  { slugs, retryFailed = false, canary }: RunRequest,
): Promise<{ id: number; candidates: MigrationCandidate[] }> {
  await closeAbandonedRuns(client);

  const { rows: runs } = await client.query<{ id: string }>(
    `with run as (
       insert into migration_runs (head, canary, requested_by) values ($1, $2, $3) returning id
     ), outcomes as (
       insert into migration_outcomes (run_id, tenant_id, state, from_version, to_version, finished_at)
       select run.id, t.id, case when done then 'current' else 'pending' end, schema_version,
              case when done then schema_version end, case when done then now() end
         from run, tenants t join json_each_text($4) f on f.key = t.server_id::text,
              lateral (select coalesce(schema_version = $1 and schema_fingerprint = f.value, false) as done) d
        where status <> 'provisioning' and ($5::text[] is null or slug = any ($5))
          and (not $6 or ${lastOutcome} = 'failed')
     ) select id, pg_advisory_lock(${lockSpaces.run}, id::int) from run`,
    [
      head,
      canary,
      operatorName(),
      JSON.stringify(
        Object.fromEntries([...servers].map(([id, { fingerprint }]) => [id, fingerprint])),
      ),
      slugs,
      retryFailed,
    ],
  );

  const id = Number(runs[0]?.id);

  const { rows } = await client.query<{
    id: string;
    slug: string;
    serverId: number;
    atHead: boolean;
  }>(
    `select t.id, slug, server_id as "serverId", o.state = 'current' as "atHead"
       from migration_outcomes o join tenants t on t.id = tenant_id where run_id = $1 order by slug`,
    [id],
  );

  return { id, candidates: rows.map(row => ({ ...row, id: Number(row.id) })) };
}

/** Ends the runs whose process was killed. The next run migrates their unfinished tenants. */
export async function closeAbandonedRuns(client: Queryable): Promise<void> {
  const { rows } = await client.query<{ id: string }>(
    `select id from migration_runs where state = 'running'`,
  );
  for (const id of rows.map(row => Number(row.id))) {
    if (!(await tryLock(client, lockSpaces.run, id))) continue;
    await endRun(client, id, 'abandoned', 'the process of the run was ended');
    await releaseLock(client, lockSpaces.run, id);
  }
}

/** Ends a run. Its unfinished tenants become `skipped`, with `reason` as their error. */
export async function endRun(
  client: Queryable,
  id: number,
  state: RunState,
  reason: string,
): Promise<void> {
  await client.query(
    `with run as (
       update migration_runs set state = $2, finished_at = now() where id = $1 and state = 'running' returning id)
     update migration_outcomes set state = 'skipped', error = $3, finished_at = now()
      from run where run_id = run.id and migration_outcomes.state in ('pending', 'running')`,
    [id, state, reason],
  );
}

/** @throws {OperatorError} that names the tenants that do not exist */
export async function requireTenants(
  { statements }: ControlStatements,
  slugs: string[],
): Promise<void> {
  const { rows: found } = await statements.query<{ slug: string }>(
    `select slug from tenants where status <> 'provisioning' and slug in (select jsonb_array_elements_text($1::jsonb))`,
    [JSON.stringify(slugs)],
  );
  requireFound(slugs, found);
}

/** The result of a run for one tenant. `from` and `to` are schema versions; null is unknown. */
export interface TenantResult {
  state: OutcomeState;
  from: string | null;
  to: string | null;
  ms: number;
  error?: string;
  failure?: MigrationFailure;
}

/** SQL for the outcome of the tenant `t` in the newest run that reached it. */
export const lastOutcome = `(select l.state from migration_outcomes l
                              where l.tenant_id = t.id and l.state in ('migrated', 'current', 'failed')
                              order by run_id desc limit 1)`;

/** Records that a run works on a tenant. */
export async function recordRunning(
  control: Queryable,
  run: number,
  tenant: number,
): Promise<void> {
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
  { state, from, to, ms, error, failure }: TenantResult,
  schema?: RecordedSchema,
): Promise<void> {
  await control.query(
    `with changed as (
       update tenants set schema_version = $8, compatible_from = $9, schema_fingerprint = $10, updated_at = now()
        where id = $2 and $8::text is not null
     )
     update migration_outcomes
        set state = $3, from_version = $4, to_version = $5, ms = $6, error = $7, failure = $11::jsonb, finished_at = now()
      where run_id = $1 and tenant_id = $2`,
    [
      run,
      tenant,
      state,
      from,
      to,
      ms,
      error,
      schema?.version,
      schema?.compatibleFrom,
      schema?.fingerprint,
      failure && JSON.stringify(failure),
    ],
  );
}
