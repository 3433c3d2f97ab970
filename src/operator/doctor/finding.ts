/** Something that is wrong, and what to do about it. */
export interface Finding {
  /** One word for the kind, for scripts. */
  check: Check;
  server: string;
  /** Its slug; null when it is about no tenant, or none that is known. */
  tenant: string | null;
  problem: string;
  remedy: string;
  /** What mends it without a risk, when there is such a thing. */
  repair?: Repair;
}

/** Statements with the rights of the operator, on the server, or inside the database that is named. Not to be shown. */
export interface Repair {
  database?: string;
  statements: string[];
}

export type Check =
  | 'server_unreachable'
  | 'missing_database'
  | 'half_dropped_database'
  | 'closed_database'
  | 'orphan_database'
  | 'orphan_role'
  | 'warm_leftover'
  | 'old_template'
  | 'stuck_provisioning'
  | 'missing_role'
  | 'missing_rights'
  | 'excess_rights'
  | 'public_access'
  | 'login_fails'
  | 'missing_key'
  | 'secret_does_not_open'
  | 'wrong_identity'
  | 'version_differs'
  | 'behind'
  | 'schema_drift'
  | 'not_examined';

/** The same thing found again is the same finding. */
export function keyOf({ check, server, tenant, problem }: Finding): string {
  return JSON.stringify([check, server, tenant, problem]);
}
