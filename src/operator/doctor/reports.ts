import { newProcess } from '../../control/process-identity.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { operatorName } from '../command/operator-name.ts';
import { migrationsDigest } from '../schema/template.ts';
import type { Finding, RepairKind } from './finding.ts';

/**
 * A finding as a report has it: without the statements of its repair, which may hold the
 * verifier of a password.
 */
export interface ReportedFinding extends Omit<Finding, 'repair'> {
  /** The name of the finding in commands. */
  id: string;
  /** The condition under which `--fix` repairs the finding; null: another command does. */
  repair: RepairKind | null;
  fixed: boolean;
}

/** Measures of a server that SQL can take; the free space of its disk is not among them. */
export interface ServerMeasures {
  server: string;
  databases: number;
  /** The time at which its log was last archived in part (RFC 3339, UTC); null: never. */
  archivedAt: string | null;
  /** True if the last attempt to archive a part of it has failed. */
  archiveFails: boolean;
  /** The number of standbys and other receivers that read its write-ahead log. */
  receivers: number;
  /**
   * The bytes by which the last receiver is behind; null: there is none, or the receiver or the
   * login of the command does not say.
   */
  lagBytes: number | null;
  /**
   * The databases that no tenant has and that were not looked into, because the login of the
   * command may not connect to them.
   */
  notEntered: readonly string[];
}

/** The document that `doctor --json` prints. */
export interface DoctorReport {
  /**
   * The build that has made the report, with a digest of its tenant migrations: another build
   * may come to other findings.
   */
  build: string;
  /** False when a finding is an error that is not fixed. */
  healthy: boolean;
  /** The numbers of servers and tenants that were checked. */
  servers: number;
  tenants: number;
  /** The measures of each server that responds. */
  measured: ServerMeasures[];
  findings: ReportedFinding[];
}

/**
 * Identifies this build, for results that depend on its version and on its tenant migrations.
 */
export async function thisBuild(): Promise<string> {
  return `${newProcess('command').build} (${await migrationsDigest()})`;
}

/**
 * Stores a report in the place of the last one. Each finding gets the guid of its tenant, which
 * may have another slug later.
 * @param madeBy the name of the operator
 */
export async function storeReport(
  control: Queryable,
  report: DoctorReport,
  madeBy = operatorName(),
): Promise<void> {
  await control.query(
    `with former as (delete from doctor_reports), given as (select $1::jsonb as report)
     insert into doctor_reports (made_by, report)
     select $2, report || jsonb_build_object('findings', (
              select coalesce(jsonb_agg(finding || jsonb_build_object('tenantGuid', t.guid) order by at), '[]')
                from jsonb_array_elements(report -> 'findings') with ordinality as each (finding, at)
                left join tenants t on t.guid = tenant_named(finding ->> 'tenant')))
       from given`,
    [JSON.stringify(report), madeBy],
  );
}

/**
 * Stores the sizes in bytes of databases, by the ids of their tenants, as those of this hour.
 */
export async function storeSizes(
  control: Queryable,
  sizes: ReadonlyMap<number, number>,
): Promise<void> {
  await control.query(
    `insert into tenant_usage as u (tenant_id, hour, database_bytes)
     select t.id, date_trunc('hour', now(), 'UTC'), bytes
       from jsonb_to_recordset($1::jsonb) as measured (id bigint, bytes bigint)
       join tenants t using (id)
      order by 1
         on conflict (tenant_id, hour) do update set database_bytes = excluded.database_bytes`,
    [JSON.stringify([...sizes].map(([id, bytes]) => ({ id, bytes })))],
  );
}
