import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { type Difference, differenceText } from '../../lib/postgres/schema-fingerprint.ts';
import { independentDifferences } from './repair-drift.ts';

/**
 * The facts about the failure of a migration that help to find its cause, without values of a
 * tenant.
 */
export interface MigrationFailure {
  /**
   * SQLSTATE of PostgreSQL (appendix A of its manual); null: the error is not one of
   * PostgreSQL.
   */
  readonly sqlState: string | null;
  readonly migration: string | null;
  /** The statement that failed, or its beginning. */
  readonly statement: string | null;
  /** The place of further facts in the log of the server; null: no statement failed. */
  readonly log: ServerLogPlace | null;
  /**
   * All differences of the schema from the template, without those that are part of another
   * one.
   */
  readonly differences: readonly ReportedDifference[];
}

/** An entry of the log of a server: its line has this process, and about this time. */
export interface ServerLogPlace {
  readonly server: string;
  readonly database: string;
  /** The process of the session, which `%p` of `log_line_prefix` prints. */
  readonly process: number | null;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/** A difference, with the statements that undo it; null: no statement can. */
export interface ReportedDifference {
  readonly object: string;
  readonly text: string;
  readonly sql: readonly string[] | null;
}

/** A schema that is not that of the template. */
export class SchemaDriftError extends OperatorError {
  readonly differences: readonly ReportedDifference[];

  /**
   * @param differences at least one
   * @param group the group role of all tenants
   */
  constructor(differences: readonly Difference[], group: string) {
    const independent = independentDifferences(differences, group);
    super(
      `its schema differs from the template${driftText(independent.map(({ difference }) => difference))}`,
    );
    this.differences = independent.map(({ difference, sql }) => ({
      object: difference.object,
      text: differenceText(difference),
      sql: sql ?? null,
    }));
  }
}

/** Names all differences; of a single one, both definitions. */
function driftText(differences: readonly Difference[]): string {
  const [first] = differences;
  if (differences.length === 1 && first) return `: ${differenceText(first)}`;

  return ` in ${differences.length} objects: ${differences.map(({ object }) => object).join(', ')}`;
}

/** An error of a statement of a migration, which `applyStep` has given the statement. */
interface StatementError {
  readonly migration?: string;
  readonly statement?: string;
  readonly process?: number | null;
}

/** @param place of the database that was migrated */
export function failureOf(
  error: unknown,
  place: { readonly server: string; readonly database: string },
) {
  const { migration = null, statement = null, process = null } = error as StatementError;
  const failure: MigrationFailure = {
    sqlState: sqlState(error) ?? null,
    migration,
    statement,
    log: statement === null ? null : { ...place, process, at: new Date().toISOString() },
    differences: error instanceof SchemaDriftError ? error.differences : [],
  };

  return failure;
}

/**
 * Formats the facts about a failure, without its message, as lines.
 * @param slug of the tenant
 */
export function failureLines(
  slug: string,
  { sqlState, statement, log, differences }: MigrationFailure,
): string[] {
  const drift = differences.flatMap(({ text, sql }) => [
    `-- ${text}`,
    ...(sql === null
      ? ['-- No statement undoes this: restore an archive of the tenant.']
      : sql.map(each => `${each};`)),
  ]);

  return [
    ...(statement === null
      ? []
      : [`${slug}: SQLSTATE ${sqlState ?? 'unknown'} in the statement`, `  ${statement}`]),
    ...(log === null ? [] : [`  ${logText(log)}`]),
    ...(drift.length === 0
      ? []
      : [`${slug}: what undoes the differences, if nobody needs them`, ...drift]),
  ];
}

/** Describes the place of further facts in the log of a server. */
export function logText({ server, database, process, at }: ServerLogPlace): string {
  const session = process === null ? '' : `, process ${process}`;
  return `In the log of server ${server}: ${at.slice(0, 19).replace('T', ' ')} UTC${session}, database ${database}`;
}
