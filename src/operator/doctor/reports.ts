import { createHash } from 'node:crypto';
import { OperatorError } from '../../log/operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import type { Statements } from '../../postgres/statements.ts';
import { operatorName } from '../command/operator-name.ts';
import { type Acceptance, type Finding, type FindingIdentity, findingKey } from './finding.ts';

/** A finding as a report has it: without the statements of its repair, which may hold the verifier of a password. */
export interface ReportedFinding extends Omit<Finding, 'repair'> {
  /** Names it in commands. */
  id: string;
  fixed: boolean;
  accepted: Acceptance | null;
}

/** What `doctor --json` prints. */
export interface DoctorReport {
  /** False when a finding is an error that is neither fixed nor accepted. */
  healthy: boolean;
  /** How many servers and tenants were checked. */
  servers: number;
  tenants: number;
  /** How many tenant databases were not opened, because they did not change since nothing was wrong inside. */
  unchanged: number;
  /** The accepted ones are the last. */
  findings: ReportedFinding[];
}

/** Stores a report in the place of the last one. */
export async function storeReport(control: Statements, report: DoctorReport): Promise<void> {
  await control.execute(
    `with former as (delete from doctor_reports)
     insert into doctor_reports (made_by, report) values (?, ?::jsonb)`,
    [operatorName(), JSON.stringify(report)],
  );
}

/** A report, and when and by whom it was made. */
interface StoredReport {
  report: DoctorReport;
  madeAt: string;
  madeBy: string;
}

/** Returns the last report with its time; undefined before the first one. */
export async function readStoredReport(control: Statements): Promise<StoredReport | undefined> {
  const [row] = await control.execute<StoredReport[]>(
    `select report, ${isoTime('made_at')} as "madeAt", made_by as "madeBy" from doctor_reports order by id desc limit 1`,
  );
  return row;
}

/** Returns 8 hexadecimal digits that name a finding in commands. */
export function findingId(finding: FindingIdentity): string {
  return createHash('sha256').update(findingKey(finding)).digest('hex').slice(0, 8);
}

/** Reads the acceptances, by the key of the finding (`findingKey`). */
export async function readAcceptances(control: Statements): Promise<Map<string, Acceptance>> {
  const rows = await control.execute<(FindingIdentity & Acceptance)[]>(
    `select kind as check, server, tenant, problem, reason, accepted_by as by,
            to_char(accepted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at
       from accepted_findings`,
  );
  return new Map(rows.map(({ by, at, reason, ...finding }) => [findingKey(finding), { by, at, reason }]));
}

/** Returns a finding of the last report. @throws {OperatorError} when it has none with this id */
export async function findFinding(control: Statements, id: string): Promise<FindingIdentity> {
  const stored = await readStoredReport(control);
  const finding = stored?.report.findings.find(each => each.id === id);
  if (!finding)
    throw new OperatorError(
      `The last report of doctor has no finding ${id}. Check again, and see which it has: npx backoffice doctor`,
    );
  const { check, server, tenant, problem } = finding;
  return { check, server, tenant, problem };
}

/**
 * Accepts a finding of the last report: from now on it makes no check fail, and `--fix` leaves it alone. A second
 * acceptance replaces the first.
 * @throws {OperatorError} as `findFinding`
 */
export async function acceptFinding(control: Statements, id: string, reason: string): Promise<FindingIdentity> {
  const finding = await findFinding(control, id);
  const { check, server, tenant, problem } = finding;
  await control.execute(
    `insert into accepted_findings (id, kind, server, tenant, tenant_id, problem, reason, accepted_by)
     values (?, ?, ?, ?, (select id from tenants where slug = ?), ?, ?, ?)
     on conflict (id) do update
       set reason = excluded.reason, accepted_by = excluded.accepted_by, accepted_at = now()`,
    [id, check, server, tenant, tenant, problem, reason, operatorName()],
  );
  return finding;
}

/** Returns a finding that was accepted. @throws {OperatorError} when it was not */
export async function findAccepted(control: Statements, id: string): Promise<FindingIdentity> {
  const [finding] = await control.execute<FindingIdentity[]>(
    'select kind as check, server, tenant, problem from accepted_findings where id = ?',
    [id],
  );
  if (!finding) throw new OperatorError(`No finding ${id} was accepted. See which: npx backoffice doctor`);
  return finding;
}

/** Takes an acceptance back. @throws {OperatorError} as `findAccepted` */
export async function reopenFinding(control: Statements, id: string): Promise<FindingIdentity> {
  const finding = await findAccepted(control, id);
  await control.execute('delete from accepted_findings where id = ?', [id]);
  return finding;
}
