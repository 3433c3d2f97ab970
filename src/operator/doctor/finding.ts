import { createHash } from 'node:crypto';

/** Something that is wrong, and what to do about it. */
export interface Finding {
  /** The kind of the finding: one stable word, for scripts. */
  check: Check;
  server: string;
  /** Slug of the tenant; null when the finding concerns no tenant, or no known one. */
  tenant: string | null;
  /** An error affects a tenant or its safety. A warning is a leftover or a setting: the exit code stays 0. */
  severity: 'error' | 'warning';
  problem: string;
  /** What the operator has to do: an imperative sentence, with the whole command or statement. */
  remedy: string;
  /** The repair, if it has no risk; absent when the operator has to decide. */
  repair?: Repair;
}

/** Who has decided that a finding may stay, when (RFC 3339, UTC) and why. */
export interface Acceptance {
  by: string;
  at: string;
  reason: string;
}

/**
 * Statements that run with the rights of the operator. They may hold the verifier of a password, so they are never
 * shown.
 */
interface Repair {
  /** The database that they run in; absent: any database of the server. */
  database?: string;
  statements: string[];
}

/** Every kind of finding, and how severe it is. */
export const checks = {
  server_unreachable: 'error',
  server_version: 'error',
  server_setting: 'warning',
  unverified_tls: 'warning',
  wal_not_archived: 'warning',
  too_few_connections: 'error',
  few_connections: 'warning',
  old_transaction_ids: 'error',
  shared_sessions: 'error',
  missing_database: 'error',
  renamed_database: 'error',
  half_dropped_database: 'error',
  closed_database: 'error',
  orphan_database: 'error',
  orphan_role: 'error',
  leftover_database: 'warning',
  old_template: 'warning',
  stuck_provisioning: 'error',
  missing_role: 'error',
  missing_rights: 'error',
  excess_rights: 'error',
  public_access: 'error',
  default_access: 'warning',
  login_fails: 'error',
  missing_key: 'error',
  secret_does_not_open: 'error',
  wrong_identity: 'error',
  version_differs: 'error',
  behind: 'error',
  schema_drift: 'error',
  not_examined: 'error',
  unfinished_switch: 'error',
  limits_not_shared: 'warning',
  webhooks_behind: 'warning',
  unfinished_control_restore: 'error',
  purged_archives_left: 'warning',
  unknown_archives: 'warning',
  archives_not_removed: 'warning',
  archives_unproved: 'warning',
  retention_behind: 'warning',
} as const;

type Check = keyof typeof checks;

/** What identifies a finding. A finding whose text changes is another one: an acceptance does not cover it. */
export type FindingIdentity = Pick<Finding, 'check' | 'server' | 'tenant' | 'problem'>;

/** Identifies a finding: two runs of the checks that find the same fault return findings with equal keys. */
export function findingKey({ check, server, tenant, problem }: FindingIdentity): string {
  return JSON.stringify([check, server, tenant, problem]);
}

/** Returns 8 hexadecimal digits that name a finding in commands. */
export function findingId(finding: FindingIdentity): string {
  return createHash('sha256').update(findingKey(finding)).digest('hex').slice(0, 8);
}

/** A finding as a check of one server or one tenant database reports it. */
export interface Report {
  check: Check;
  /** Absent: the finding concerns no tenant. */
  tenant?: string | undefined;
  problem: string;
  /** With `statements`, without the full stop at its end. */
  remedy: string;
  /** Statements that repair it without risk. */
  statements?: string[] | undefined;
  /** The database that the statements drop, or whose rights they change. */
  changes?: string;
  /** The role that the statements alter. They must not have its password. */
  alters?: string;
  /** True if only a superuser may run the statements. */
  needsSuperuser?: boolean;
}

/**
 * Makes a finding of what a check reports.
 * @param database that the statements run in; absent: any database of the server
 */
export function toFinding(server: string, report: Report, database?: string): Finding {
  const { check, tenant = null, problem, remedy, statements } = report;
  const finding: Finding = { check, server, tenant, severity: checks[check], problem, remedy };
  if (!statements) return finding;
  const repair = { ...(database === undefined ? {} : { database }), statements };
  return { ...finding, remedy: `${remedy} (npx backoffice doctor --fix ${findingId(finding)}).`, repair };
}
