import type { ControlStatements } from '../../control/installation.ts';
import { tenantHead } from '../../control/tenant-head.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { doneSql, guidOfFinding, isDoneSql, lastReportSql } from '../registry/done-since.ts';
import { type DoctorReport, type ReportedFinding, thisBuild } from './reports.ts';

/** A finding of the last report. */
export interface StoredFinding extends ReportedFinding {
  /** True if the remedy was carried out since, and nobody has checked again. */
  isDone: boolean;
}

/** The findings of the last report, and the repairs since. */
export interface StoredFindings extends Omit<DoctorReport, 'findings' | 'healthy'> {
  madeAt: string;
  madeBy: string;
  /** True if another build has made the report: this build cannot judge its repairs. */
  isOfOtherBuild: boolean;
  /** The number of findings that the filter selects. */
  total: number;
  /** The numbers of findings that are neither repaired nor done, by their severity. */
  errors: number;
  warnings: number;
  /** The number of findings whose remedy was done since, and that nobody has checked again. */
  done: number;
  /** The findings: open ones first, errors before warnings. */
  findings: StoredFinding[];
}

/** A selection of findings; a field that is undefined does not limit it. */
interface FindingFilter {
  /** A slug; null for the findings that concern no tenant. */
  tenant?: string | null | undefined;
  server?: string | undefined;
  ids?: readonly string[] | undefined;
  limit?: number;
  offset?: number;
}

/**
 * Reads the last report of doctor; undefined before the first one. Reads no more findings than
 * it returns. A finding also counts as repaired when its tenant was purged since, or was behind
 * and has been brought to the version of this build.
 */
export async function readFindings(
  { statements }: ControlStatements,
  { tenant, server, ids, limit, offset }: FindingFilter = {},
): Promise<StoredFindings | undefined> {
  const [tenantJson, idsJson] = [tenant, ids].map(value =>
    value === undefined ? null : JSON.stringify(value),
  );

  const { rows } = await statements.query<
    Omit<StoredFindings, keyof DoctorReport> &
      Pick<StoredFindings, 'findings'> & { report: DoctorReport }
  >(
    `with last as materialized (${lastReportSql}),
       done as materialized (${doneSql}),
       found as materialized (
         select finding, at, coalesce(t.slug, finding ->> 'tenant') as tenant, finding ->> 'severity' as severity, fixed, is_done
           from last, jsonb_array_elements(report -> 'findings') with ordinality as each (finding, at)
           left join tenants t on t.guid = ${guidOfFinding('finding')},
                lateral (select (finding ->> 'fixed')::boolean or finding ->> 'tenant' is not null and t.id is null
                             or finding ->> 'check' = 'behind' and coalesce(schema_version = $1, false) as fixed) f,
                lateral (select not fixed and ${isDoneSql('finding')} as is_done) d
          where ($2::jsonb is null or coalesce(to_jsonb(t.slug), finding -> 'tenant') = $2::jsonb) and ($3::text is null or finding ->> 'server' = $3)
            and ($4::jsonb is null or $4::jsonb @> (finding -> 'id'))),
       shown as (select * from found order by fixed, is_done, severity, at limit $5 offset $6)
     select report - 'findings' as report, ${isoTime('made_at')} as "madeAt", made_by as "madeBy",
            (select count(*)::int from found) as total,
            (select count(*)::int from found where not fixed and not is_done and severity = 'error') as errors,
            (select count(*)::int from found where not fixed and not is_done and severity = 'warning') as warnings,
            (select count(*)::int from found where is_done) as done,
            (select coalesce(json_agg((finding - 'tenantGuid') || jsonb_build_object('tenant', tenant, 'fixed', fixed, 'isDone', is_done)
                      order by fixed, is_done, severity, at), '[]') from shown) as findings
       from last`,
    [await tenantHead(), tenantJson, server, idsJson, limit, offset],
  );
  const [row] = rows;
  if (!row) return undefined;

  const { report, ...findings } = row;
  return { ...report, ...findings, isOfOtherBuild: report.build !== (await thisBuild()) };
}

/** @throws {OperatorError} when the last report has no finding with one of these ids */
export async function requireFindings(
  control: ControlStatements,
  ids: readonly string[],
): Promise<void> {
  const last = await readFindings(control, { ids });
  requireOwnReport(last);
  const found = last?.findings ?? [];
  const missing = ids.find(id => !found.some(finding => finding.id === id));
  if (missing === undefined) return;

  throw new OperatorError(
    `The last report of doctor has no finding ${missing}. Check again, and see which it has: bin/backoffice doctor`,
  );
}

/** @throws {OperatorError} when another build has made the report */
function requireOwnReport(last: StoredFindings | undefined): void {
  if (!last?.isOfOtherBuild) return;

  throw new OperatorError(
    `The last report is of another build (${last.build}), which judges otherwise. Check again: bin/backoffice doctor`,
  );
}

/**
 * Returns the findings of the last report that `--fix` would repair.
 * @param ids the only findings; none: all that have no risk
 */
export async function listRepairs(
  control: ControlStatements,
  ids: readonly string[],
): Promise<StoredFinding[]> {
  const last = await readFindings(control, ids.length > 0 ? { ids } : {});
  requireOwnReport(last);
  const found = last?.findings ?? [];

  return found.filter(
    ({ repair, fixed }) => !fixed && repair !== null && (repair === 'safe' || ids.length > 0),
  );
}
