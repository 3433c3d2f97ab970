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

export type Check =
  | 'server_unreachable'
  | 'server_version'
  | 'server_setting'
  | 'unverified_tls'
  | 'wal_not_archived'
  | 'too_few_connections'
  | 'old_transaction_ids'
  | 'shared_sessions'
  | 'missing_database'
  | 'renamed_database'
  | 'half_dropped_database'
  | 'closed_database'
  | 'orphan_database'
  | 'orphan_role'
  | 'leftover_database'
  | 'old_template'
  | 'stuck_provisioning'
  | 'missing_role'
  | 'missing_rights'
  | 'excess_rights'
  | 'public_access'
  | 'default_access'
  | 'readable_guid'
  | 'login_fails'
  | 'missing_key'
  | 'secret_does_not_open'
  | 'master_key_unknown'
  | 'wrong_identity'
  | 'version_differs'
  | 'behind'
  | 'schema_drift'
  | 'not_examined'
  | 'unfinished_switch'
  | 'webhooks_behind'
  | 'unfinished_control_restore';

/** What identifies a finding. A finding whose text changes is another one: an acceptance does not cover it. */
export type FindingIdentity = Pick<Finding, 'check' | 'server' | 'tenant' | 'problem'>;

/** Identifies a finding: two runs of the checks that find the same fault return findings with equal keys. */
export function findingKey({ check, server, tenant, problem }: FindingIdentity): string {
  return JSON.stringify([check, server, tenant, problem]);
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

const warnings: ReadonlySet<Check> = new Set([
  'old_template',
  'leftover_database',
  'server_setting',
  'wal_not_archived',
  'readable_guid',
  'unverified_tls',
  'default_access',
  'webhooks_behind',
]);

/**
 * Makes a finding of what a check reports.
 * @param database that the statements run in; absent: any database of the server
 */
export function toFinding(server: string, report: Report, database?: string): Finding {
  const { check, tenant = null, problem, remedy, statements } = report;
  const severity = warnings.has(check) ? 'warning' : 'error';
  const finding: Finding = { check, server, tenant, severity, problem, remedy };
  if (!statements) return finding;
  const repair = { ...(database === undefined ? {} : { database }), statements };
  return { ...finding, remedy: `${remedy} (doctor --fix does it).`, repair };
}
