import { isoTime } from '../../postgres/iso-time.ts';
import type { Statements } from '../../postgres/statements.ts';
import { operatorName } from '../command/operator-name.ts';
import type { Acceptance, Finding } from './finding.ts';

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
