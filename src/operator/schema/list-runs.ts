import { OperatorError } from '../../log/operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import type { Statements } from '../../postgres/statements.ts';

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

/** What a run did with one tenant. */
interface RunOutcome {
  slug: string;
  state: string;
  from: string | null;
  to: string | null;
  ms: number | null;
  error: string | null;
}

interface Reader {
  readonly statements: Statements;
}

const summaries = `
  select r.id::float8, r.state, r.head, r.requested_by as "requestedBy", ${isoTime('r.started_at')} as "startedAt",
         ${isoTime('r.finished_at')} as "finishedAt", o.tenants, o.outcomes
    from migration_runs r,
         lateral (select coalesce(sum(n), 0)::int as tenants, coalesce(json_object_agg(state, n), '{}') as outcomes
                    from (select state, count(*)::int as n from migration_outcomes where run_id = r.id group by state) s) o`;

/** Returns the newest migration runs, the newest first. */
export async function listRuns({ statements }: Reader, limit: number): Promise<RunSummary[]> {
  return statements.execute(`${summaries} order by r.id desc limit ?`, [limit]);
}

/** Returns a run. @param id without it, the newest one @throws {OperatorError} when there is no such run */
export async function readRun({ statements }: Reader, id: number | undefined): Promise<RunSummary> {
  const [run] = await statements.execute<RunSummary[]>(
    `${summaries} where ?::bigint is null or r.id = ?::bigint order by r.id desc limit 1`,
    [id ?? null, id ?? null],
  );
  if (!run) throw new OperatorError(`There is no run ${id ?? 'yet'}. List them: npx backoffice runs list`);
  return run;
}

/** Returns the outcomes of a run, those that failed first. */
export async function runOutcomes({ statements }: Reader, id: number): Promise<RunOutcome[]> {
  return statements.execute(
    `select slug, state, from_version as "from", to_version as "to", ms, error
       from migration_outcomes join tenants t on t.id = tenant_id
      where run_id = ? order by state <> 'failed', state <> 'running', slug`,
    [id],
  );
}
