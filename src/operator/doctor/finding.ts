import { createHash } from 'node:crypto';

/** A fault, and its remedy. */
export interface Finding {
  /** The kind of the finding: one stable word, for scripts. */
  check: Check;
  server: string;
  /** Slug of the tenant; null when the finding concerns no tenant, or no known one. */
  tenant: string | null;
  /**
   * An error affects a tenant or its safety, and its remedy has a command that mends it. A
   * warning has exit code 0.
   */
  severity: 'error' | 'warning';
  problem: string;
  /** The action of the operator: an imperative sentence, with the whole command. */
  remedy: string;
  /** The repair that `doctor --fix` makes; absent when another command mends it. */
  repair?: Repair;
}

/**
 * The condition under which `doctor --fix` makes a repair. `safe`: always, because it has no
 * risk. `named`: only if the operator names the finding, because only they know whether it is
 * wanted.
 */
export type RepairKind = 'safe' | 'named';

/**
 * Statements that run with the rights of the operator. They may hold the verifier of a
 * password, so they are never shown.
 */
interface Repair {
  kind: RepairKind;
  /** The database that the statements run in; absent: any database of the server. */
  database?: string;
  statements: string[];
  /** A statement that runs in the control database after the others. */
  control?: ControlStatement;
}

/** A statement of the control database, with its values. */
interface ControlStatement {
  text: string;
  values: unknown[];
}

/**
 * Every kind of error, with the commands that mend it: one of them is in the remedy of each
 * finding. A word in capitals stands for a name that the finding has. The handbook has the same
 * table, and a test runs each of them as it is printed.
 */
export const errors = {
  server_unreachable: ['bin/backoffice server add SERVER'],
  shared_sessions: ['bin/backoffice server add SERVER'],
  operator_rights: [
    `psql "$DATABASE_URL" -c 'grant "ROLE" to "ROLE"'`,
    `psql "$DATABASE_URL" -c 'grant "ROLE" to "ROLE" with admin option'`,
    `psql "$DATABASE_URL" -c 'alter database "DATABASE" owner to "ROLE"'`,
  ],
  missing_database: [
    'bin/backoffice restore TENANT --lost',
    'bin/backoffice purge TENANT',
    'bin/backoffice databases drop TENANT DATABASE',
  ],
  renamed_database: ['bin/backoffice doctor --fix FINDING'],
  half_dropped_database: [
    'bin/backoffice restore TENANT --lost',
    'bin/backoffice doctor --fix FINDING',
  ],
  closed_database: ['bin/backoffice doctor --fix FINDING'],
  open_database: ['bin/backoffice doctor --fix FINDING'],
  orphan_database: [
    `psql "$DATABASE_URL" -c 'drop database "DATABASE"'`,
    'bin/backoffice doctor --fix FINDING',
  ],
  orphan_role: ['bin/backoffice doctor --fix FINDING'],
  stuck_provisioning: ['bin/backoffice purge TENANT'],
  missing_role: ['bin/backoffice doctor --fix FINDING'],
  missing_rights: ['bin/backoffice doctor --fix FINDING', 'bin/backoffice databases prune TENANT'],
  excess_rights: ['bin/backoffice doctor --fix FINDING'],
  public_access: ['bin/backoffice doctor --fix FINDING'],
  login_fails: ['bin/backoffice doctor --fix FINDING'],
  missing_key: ['bin/backoffice key rotate TENANT'],
  secret_does_not_open: [
    'bin/backoffice server add SERVER',
    'bin/backoffice doctor --fix FINDING',
    'bin/backoffice key disable TENANT KEY',
    'bin/backoffice user factors reset TENANT EMAIL --reason "key cannot be decrypted"',
  ],
  replicated_database: ['bin/backoffice doctor --fix FINDING'],
  rows_from_future: ['bin/backoffice doctor --fix FINDING'],
  sequence_behind: ['bin/backoffice doctor --fix FINDING'],
  wrong_identity: ['bin/backoffice doctor --fix FINDING'],
  version_differs: ['bin/backoffice migrate TENANT', 'bin/backoffice doctor --fix FINDING'],
  behind: ['bin/backoffice migrate TENANT'],
  schema_drift: [
    'bin/backoffice doctor --fix FINDING',
    'bin/backoffice restore TENANT --archive latest',
    'bin/backoffice restore swap TENANT',
  ],
  text_order_differs: [
    'bin/backoffice restore TENANT --archive latest',
    'bin/backoffice restore swap TENANT',
  ],
  not_examined: ['bin/backoffice doctor --fix FINDING'],
  unfinished_switch: ['bin/backoffice databases prune TENANT'],
  unfinished_control_restore: [
    'bin/backoffice control restore --archive NAME',
    `psql "$DATABASE_URL" -c 'drop database "DATABASE"'`,
  ],
} as const satisfies Record<string, readonly string[]>;

/** Every kind of warning: a leftover, or a thing that only its owner can decide or mend. */
export const warnings = [
  'server_version',
  'unverified_tls',
  'control_text_order',
  'wal_not_archived',
  'few_connections',
  'unknown_room',
  'login_ends',
  'read_only',
  'old_transaction_ids',
  'unknown_tenant',
  'leftover_database',
  'copied_database',
  'old_template',
  'open_template',
  'newer_schema',
  'limits_not_shared',
  'wide_proxies',
  'clock_differs',
  'webhooks_behind',
  'mails_waiting',
  'mails_refused',
  'provider_unreachable',
  'users_without_entity',
  'feed_held',
  'notify_queue_held',
  'connections_taken',
  'pooler_keeps_sessions',
  'catalog_locked',
  'prepared_transaction',
  'wal_held',
  'purged_archives_left',
  'unknown_archives',
  'stray_objects',
  'archives_lost',
  'archives_not_removed',
  'archives_unproved',
  'retention_behind',
] as const;

export type Check = keyof typeof errors | (typeof warnings)[number];

/** The fields that identify a finding. A finding whose text changes is another one. */
export type FindingIdentity = Pick<Finding, 'check' | 'server' | 'tenant' | 'problem'>;

/**
 * Identifies a finding: two runs of the checks that find the same fault return findings with
 * equal keys.
 */
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
  /**
   * The remedy. With `statements`, it has no full stop at its end: the command of the repair
   * follows.
   */
  remedy: string;
  /** The statements that repair the fault. */
  statements?: string[] | undefined;
  /** Absent: `safe`. */
  kind?: RepairKind;
  /** The database that the statements must run in; absent: any database of the server. */
  database?: string | undefined;
  /** A statement that runs in the control database after `statements`. */
  control?: ControlStatement;
  /** The database that the statements drop, or whose rights they change. */
  changes?: string;
  /** The role that the statements alter. They must not have its password. */
  alters?: string;
  /** True if only a superuser may run the statements. */
  needsSuperuser?: boolean;
}

/** Makes a finding of a report of a check. */
export function toFinding(server: string, report: Report): Finding {
  const {
    check,
    tenant = null,
    problem,
    remedy,
    statements,
    kind = 'safe',
    database,
    control,
  } = report;
  const severity = check in errors ? 'error' : 'warning';
  const finding: Finding = { check, server, tenant, severity, problem, remedy };
  if (!statements) return finding;

  const repair: Repair = {
    kind,
    statements,
    ...(database === undefined ? {} : { database }),
    ...(control === undefined ? {} : { control }),
  };

  return {
    ...finding,
    remedy: `${remedy}: bin/backoffice doctor --fix ${findingId(finding)}`,
    repair,
  };
}
