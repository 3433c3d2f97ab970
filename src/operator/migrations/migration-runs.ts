import { hostname, userInfo } from 'node:os';
import type { OutcomeState, RunState } from '../../control/migration-run.ts';
import { lockSpaces } from '../../postgres/advisory-locks.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';

/** What an operator asked for. */
export interface RunRequest {
  /** Only these tenants; all without it. */
  slugs?: string[] | undefined;
  /** Only those that failed when a run last came to them. */
  retryFailed?: boolean | undefined;
  /** Tenants migrated at the same time, on each server. */
  concurrency?: number | undefined;
  /** So many tenants first; when one of them fails, no others. */
  canary?: number | undefined;
  /** When so many have failed, no further tenant is begun. */
  maxFailures?: number | undefined;
}

/** A tenant of a run, as the run found it. */
export interface Candidate {
  id: number;
  slug: string;
  serverId: number;
  /** The schema that the books have is the one at head. */
  atHead: boolean;
}

/**
 * Begins a run: a row for it, and one for every tenant it is about, in one statement. As long as `client` is connected,
 * the run counts as running.
 * @param fingerprints at head, by the id of the server
 */
export async function beginRun(
  client: Queryable,
  head: string,
  fingerprints: Map<number, string>,
  { slugs, retryFailed = false, concurrency, canary, maxFailures }: RunRequest,
): Promise<{ id: number; candidates: Candidate[] }> {
  await closeAbandonedRuns(client);
  const { rows: made } = await client.query<{ id: string }>(
    `with run as (
       insert into migration_runs (head, concurrency, canary, max_failures, requested_by) values ($1, $2, $3, $4, $5) returning id
     ), outcomes as (
       insert into migration_outcomes (run_id, tenant_id, state, from_version, to_version, finished_at)
       select run.id, t.id, case when done then 'current' else 'pending' end, schema_version,
              case when done then schema_version end, case when done then now() end
         from run, tenants t join json_each_text($6) f on f.key = t.server_id::text,
              lateral (select coalesce(schema_version = $1 and schema_fingerprint = f.value, false) as done) d
        where status <> 'provisioning' and ($7::text[] is null or slug = any ($7))
          and (not $8 or ${lastOutcomeSql('t.id')} = 'failed')
     ) select id, pg_advisory_lock(${lockSpaces.run}, id::int) from run`,
    [
      head,
      concurrency,
      canary,
      maxFailures,
      operator(),
      JSON.stringify(Object.fromEntries(fingerprints)),
      slugs,
      retryFailed,
    ],
  );
  const id = Number(made[0]?.id);
  const { rows } = await client.query<{ id: string; slug: string; serverId: number; atHead: boolean }>(
    `select t.id, slug, server_id as "serverId", o.state = 'current' as "atHead"
       from migration_outcomes o join tenants t on t.id = tenant_id where run_id = $1 order by slug`,
    [id],
  );
  return { id, candidates: rows.map(row => ({ ...row, id: Number(row.id) })) };
}

/** SQL for what became of a tenant in the newest run that came to it. */
export function lastOutcomeSql(tenant: string): string {
  return `(select l.state from migration_outcomes l where l.tenant_id = ${tenant} and l.state in ('migrated', 'current', 'failed')
            order by run_id desc limit 1)`;
}

/**
 * Begins a run of one tenant that takes it back, by a row as every run has. As long as `client` is connected, it counts as
 * running.
 */
export async function beginRollback(client: Queryable, tenant: number, from: string, to: string): Promise<number> {
  const { rows } = await client.query<{ id: string }>(
    `with run as (
       insert into migration_runs (head, concurrency, requested_by) values ($1, 1, $2) returning id
     ), outcome as (
       insert into migration_outcomes (run_id, tenant_id, from_version, to_version) select id, $3, $4, $1 from run
     ) select id, pg_advisory_lock(${lockSpaces.run}, id::int) from run`,
    [to, operator(), tenant, from],
  );
  return Number(rows[0]?.id);
}

/** Marks the runs whose process was killed: what they did not get to is for the next one. */
export async function closeAbandonedRuns(client: Queryable): Promise<void> {
  const { rows } = await client.query<{ id: string }>(`select id from migration_runs where state = 'running'`);
  for (const { id } of rows) {
    const lock = [lockSpaces.run, Number(id)];
    const { rows: locked } = await client.query<{ free: boolean }>('select pg_try_advisory_lock($1, $2) as free', lock);
    if (!locked[0]?.free) continue;
    await endRun(client, Number(id), 'abandoned', 'the process of the run was ended');
    await client.query('select pg_advisory_unlock($1, $2)', lock);
  }
}

/** Ends a run; tenants that it did not get to are skipped, and why. */
export async function endRun(client: Queryable, id: number, state: RunState, reason: string): Promise<void> {
  await client.query(
    `with run as (update migration_runs set state = $2, finished_at = now() where id = $1 and state = 'running' returning id)
     update migration_outcomes set state = 'skipped', error = $3, finished_at = now()
      from run where run_id = run.id and migration_outcomes.state in ('pending', 'running')`,
    [id, state, reason],
  );
}

/** What a run writes down about one tenant when it is done with it. */
export interface TenantResult {
  state: OutcomeState;
  from: string | null;
  to: string | null;
  ms: number;
  error?: string;
}

/** @param schema what the tenant's database has now, when that has changed: both are written in one transaction */
export async function recordOutcome(
  books: Queryable,
  run: number,
  tenant: number,
  { state, from, to, ms, error }: TenantResult,
  schema?: { version: string; fingerprint: string | undefined },
): Promise<void> {
  await books.query(
    `with tenant as (
       update tenants set schema_version = $8::text, schema_fingerprint = $9, updated_at = now() where id = $2 and $8::text is not null
     )
     update migration_outcomes set state = $3, from_version = $4, to_version = $5, ms = $6, error = $7, finished_at = now()
      where run_id = $1 and tenant_id = $2`,
    [run, tenant, state, from, to, ms, error, schema?.version, schema?.fingerprint],
  );
}

function operator(): string {
  try {
    return `${userInfo().username}@${hostname()}`;
  } catch {
    return `${process.getuid?.() ?? 'unknown'}@${hostname()}`; // a user without a name, as in some containers
  }
}
