import type { ControlStatements } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import type { DoctorReport, ReportedFinding } from './reports.ts';

/** Findings of the last report, with what was repaired since. */
export interface StoredFindings extends Omit<DoctorReport, 'findings' | 'healthy'> {
  madeAt: string;
  madeBy: string;
  /** How many the filter selects, and how many of them are not repaired. */
  total: number;
  errors: number;
  warnings: number;
  /** The open ones first, errors before warnings. */
  findings: ReportedFinding[];
}

/** Which findings are read; what is undefined does not limit them. */
interface FindingFilter {
  /** A slug; null for the findings that concern no tenant. */
  tenant?: string | null | undefined;
  server?: string | undefined;
  ids?: readonly string[] | undefined;
  limit?: number;
  offset?: number;
}

/**
 * Reads the last report of doctor; undefined before the first one. Reads no more findings than it returns. That a
 * tenant was behind counts as repaired when it has since been brought to the version of this build.
 */
export async function readFindings(
  { statements }: ControlStatements,
  { tenant, server, ids, limit, offset }: FindingFilter = {},
): Promise<StoredFindings | undefined> {
  const [tenantJson, idsJson] = [tenant, ids].map(value => (value === undefined ? null : JSON.stringify(value)));
  const [row] = await statements.execute<(Omit<StoredFindings, keyof DoctorReport> & { report: DoctorReport })[]>(
    `with last as (select report, made_at, made_by from doctor_reports order by id desc limit 1),
       found as materialized (
         select finding, at, finding ->> 'severity' as severity, fixed
           from last, jsonb_array_elements(report -> 'findings') with ordinality as each (finding, at)
           left join tenants t on finding ->> 'check' = 'behind' and t.slug = finding ->> 'tenant' and schema_version = ?,
                lateral (select t.id is not null or (finding ->> 'fixed')::boolean as fixed) f
          where (?::jsonb is null or finding -> 'tenant' = ?::jsonb) and (?::text is null or finding ->> 'server' = ?)
            and (?::jsonb is null or ?::jsonb @> (finding -> 'id'))),
       shown as (select * from found order by fixed, severity, at limit ? offset ?)
     select report - 'findings' as report, ${isoTime('made_at')} as "madeAt", made_by as "madeBy",
            (select count(*)::int from found) as total,
            (select count(*)::int from found where not fixed and severity = 'error') as errors,
            (select count(*)::int from found where not fixed and severity = 'warning') as warnings,
            (select coalesce(json_agg(finding || jsonb_build_object('fixed', fixed)
                      order by fixed, severity, at), '[]') from shown) as findings
       from last`,
    [await tenantHead(), tenantJson, tenantJson, server, server, idsJson, idsJson, limit, offset].map(
      value => value ?? null,
    ),
  );
  if (!row) return undefined;
  const { report, ...findings } = row;
  return { ...report, ...findings } as StoredFindings;
}

/** @throws {OperatorError} when the last report has no finding with one of these ids */
export async function requireFindings(control: ControlStatements, ids: readonly string[]): Promise<void> {
  const found = (await readFindings(control, { ids }))?.findings ?? [];
  const missing = ids.find(id => !found.some(finding => finding.id === id));
  if (missing === undefined) return;

  throw new OperatorError(
    `The last report of doctor has no finding ${missing}. Check again, and see which it has: bin/backoffice doctor`,
  );
}

/** Returns what `--fix` would repair of the last report. @param ids the only findings; none: all that have no risk */
export async function listRepairs(control: ControlStatements, ids: readonly string[]): Promise<ReportedFinding[]> {
  const found = (await readFindings(control, ids.length > 0 ? { ids } : {}))?.findings ?? [];
  return found.filter(({ repair, fixed }) => !fixed && repair !== null && (repair === 'safe' || ids.length > 0));
}
