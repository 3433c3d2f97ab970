import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { pageOfList } from '../command/list-parts.ts';
import type { ListPage } from '../command/operation.ts';
import type { MigrationFailure } from './migration-failure.ts';

/** A migration run, with the number of its tenants by outcome. */
export interface RunSummary {
  id: number;
  state: string;
  head: string;
  requestedBy: string;
  startedAt: string;
  finishedAt: string | null;
  tenants: number;
  outcomes: Record<string, number>;
}

/** The outcome of a run for one tenant. */
export interface RunOutcome {
  slug: string;
  state: string;
  from: string | null;
  to: string | null;
  ms: number | null;
  error: string | null;
  failure: MigrationFailure | null;
}

const summaries = `
  select r.id::float8, r.state, r.head, r.requested_by as "requestedBy", ${isoTime('r.started_at')} as "startedAt",
         ${isoTime('r.finished_at')} as "finishedAt", o.tenants, o.outcomes
    from migration_runs r,
         lateral (select coalesce(sum(n), 0)::int as tenants, coalesce(json_object_agg(state, n order by state), '{}') as outcomes
                    from (select state, count(*)::int as n from migration_outcomes where run_id = r.id group by state) s) o`;

/**
 * Returns the newest migration runs, the newest first.
 * @param before the number of a run: only those before it
 */
export async function listRuns(
  { statements }: ControlStatements,
  limit: number,
  before?: number,
): Promise<RunSummary[]> {
  const { rows } = await statements.query<RunSummary>(
    `${summaries} where $1::bigint is null or r.id < $1::bigint order by r.id desc limit $2`,
    [before ?? null, limit],
  );

  return rows;
}

/** Returns a part of the migration runs, and how many there are. */
export async function pageRuns(
  control: ControlStatements,
  { limit, before }: { readonly limit: number; readonly before?: number | undefined },
): Promise<ListPage<RunSummary>> {
  const rows = await listRuns(control, limit + 1, before);
  const { rows: counted } = await control.statements.query<{ total: number; newer: number }>(
    'select count(*)::int as total, count(*) filter (where id >= $1::bigint)::int as newer from migration_runs',
    [before ?? null],
  );
  const [counts = { total: 0, newer: 0 }] = counted;

  return pageOfList(rows, limit, counts);
}

/**
 * Returns a run.
 * @param id without it, the newest one
 * @throws {OperatorError} when there is no such run
 */
export async function readRun(
  { statements }: ControlStatements,
  id: number | undefined,
): Promise<RunSummary> {
  const { rows } = await statements.query<RunSummary>(
    `${summaries} where $1::bigint is null or r.id = $1::bigint order by r.id desc limit 1`,
    [id ?? null],
  );
  const [run] = rows;
  if (!run) {
    throw new OperatorError(`There is no run ${id ?? 'yet'}. List them: bin/backoffice runs list`);
  }
  return run;
}

/**
 * Returns the outcomes of a run, those that failed first.
 * @param limit at most so many; without it, all
 */
export async function runOutcomes(
  { statements }: ControlStatements,
  id: number,
  limit?: number,
): Promise<RunOutcome[]> {
  const { rows } = await statements.query<RunOutcome>(
    `select slug, state, from_version as "from", to_version as "to", ms, error, failure
       from migration_outcomes join tenants t on t.id = tenant_id
      where run_id = $1 order by state <> 'failed', state <> 'running', slug limit $2`,
    [id, limit ?? null],
  );

  return rows;
}

/** The canaries of a run, or its other tenants; without those that were at head before. */
interface Wave {
  isCanary: boolean;
  tenants: number;
  outcomes: Record<string, number>;
  startedAt: string | null;
  finishedAt: string | null;
}

/**
 * Returns the waves of a run, the canaries first. No other tenant begins before all canaries
 * have ended.
 */
export async function runWaves({ statements }: ControlStatements, id: number): Promise<Wave[]> {
  const { rows } = await statements.query<Wave>(
    `select "isCanary", sum(n)::int as tenants, json_object_agg(state, n order by state) as outcomes,
            ${isoTime('min(started)')} as "startedAt", ${isoTime('max(finished)')} as "finishedAt"
       from (select "isCanary", state, count(*)::int as n, min(started_at) as started, max(finished_at) as finished
               from (select o.*, row_number() over (order by o.started_at, slug) <= coalesce(canary, 0) as "isCanary"
                       from migration_outcomes o
                      join migration_runs r on r.id = run_id
                      join tenants t on t.id = tenant_id
                      where run_id = $1 and (o.state <> 'current' or o.started_at is not null)) outcomes
              group by 1, 2) counts
      group by 1 order by 1 desc`,
    [id],
  );

  return rows;
}

/** Failures of a run that have the same cause. */
interface FailureCause {
  error: string;
  tenants: number;
  /** The first of them. */
  slugs: string[];
  failures: { slug: string; failure: MigrationFailure | null }[];
}

/**
 * Returns the failures of a run by their cause, the most frequent first. Errors that differ
 * only in the tenant have one cause.
 */
export async function failureCauses(
  { statements }: ControlStatements,
  id: number,
): Promise<FailureCause[]> {
  const { rows } = await statements.query<FailureCause>(
    `select coalesce(min(error), '') as error, count(*)::int as tenants, (array_agg(slug order by slug))[1:20] as slugs,
            (array_agg(json_build_object('slug', slug, 'failure', failure) order by slug))[1:5] as failures
       from migration_outcomes join tenants t on t.id = tenant_id
      where run_id = $1 and state = 'failed'
      group by replace(replace(coalesce(error, ''), database_name, ''), slug, '') order by 2 desc limit 50`,
    [id],
  );

  return rows;
}

/** The outcome of a run for one tenant, and its time. */
export interface TenantRun extends Omit<RunOutcome, 'slug'> {
  run: number;
  at: string;
}

/** Returns the outcomes of a tenant in the newest runs, the newest first. */
export async function tenantRuns(
  { statements }: ControlStatements,
  tenant: number,
  limit: number,
): Promise<TenantRun[]> {
  const { rows } = await statements.query<TenantRun>(
    `select run_id::float8 as run, o.state, from_version as "from", to_version as "to", ms, error, failure,
            ${isoTime('coalesce(o.finished_at, o.started_at, r.started_at)')} as at
       from migration_outcomes o join migration_runs r on r.id = run_id
      where tenant_id = $1 and o.state <> 'current' order by run_id desc limit $2`,
    [tenant, limit],
  );

  return rows;
}
