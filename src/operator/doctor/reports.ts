import { newProcess } from '../../control/process-identity.ts';
import type { Statements } from '../../lib/postgres/statements.ts';
import { operatorName } from '../command/operator-name.ts';
import { migrationsDigest } from '../schema/template.ts';
import type { Finding, RepairKind } from './finding.ts';

/**
 * A finding as a report has it: without the statements of its repair, which may hold the
 * verifier of a password.
 */
export interface ReportedFinding extends Omit<Finding, 'repair'> {
  /** Names it in commands. */
  id: string;
  /** When `--fix` repairs it; null: another command does. */
  repair: RepairKind | null;
  fixed: boolean;
}

/** What SQL can say of how a server is. It cannot say how much room its disk has. */
export interface ServerMeasures {
  server: string;
  databases: number;
  /** When a part of its write-ahead log was last archived (RFC 3339, UTC); null: never. */
  archivedAt: string | null;
  /** True if the last attempt to archive a part of it has failed. */
  archiveFails: boolean;
  /** How many standbys and other receivers read its write-ahead log. */
  receivers: number;
  /**
   * How far the last receiver is behind; null: there is none, or it or the login of the command
   * does not say.
   */
  lagBytes: number | null;
}

/** What `doctor --json` prints. */
export interface DoctorReport {
  /**
   * The build that has looked, with a digest of its tenant migrations: another build judges
   * otherwise.
   */
  build: string;
  /** False when a finding is an error that is not fixed. */
  healthy: boolean;
  /** How many servers and tenants were checked. */
  servers: number;
  tenants: number;
  /** What was measured of each server that responds. */
  measured: ServerMeasures[];
  findings: ReportedFinding[];
}

/** Identifies this build, for what depends on its version and on its tenant migrations. */
export async function thisBuild(): Promise<string> {
  return `${newProcess('command').build} (${await migrationsDigest()})`;
}

/** Stores a report in the place of the last one. */
export async function storeReport(control: Statements, report: DoctorReport): Promise<void> {
  await control.execute(
    `with former as (delete from doctor_reports)
     insert into doctor_reports (made_by, report) values (?, ?::jsonb)`,
    [operatorName(), JSON.stringify(report)],
  );
}

/**
 * Stores the sizes in bytes of databases, by the ids of their tenants, as those of this hour.
 */
export async function storeSizes(
  control: Statements,
  sizes: ReadonlyMap<number, number>,
): Promise<void> {
  await control.execute(
    `insert into tenant_usage as u (tenant_id, hour, database_bytes)
     select t.id, date_trunc('hour', now(), 'UTC'), bytes
       from jsonb_to_recordset(?::jsonb) as measured (id bigint, bytes bigint)
       join tenants t using (id)
      order by 1
         on conflict (tenant_id, hour) do update set database_bytes = excluded.database_bytes`,
    [JSON.stringify([...sizes].map(([id, bytes]) => ({ id, bytes })))],
  );
}
