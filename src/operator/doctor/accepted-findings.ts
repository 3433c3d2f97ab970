import { OperatorError } from '../../log/operator-error.ts';
import type { Statements } from '../../postgres/statements.ts';
import { operatorName } from '../command/operator-name.ts';
import { type Acceptance, type FindingIdentity, findingKey } from './finding.ts';
import { readFindings } from './read-findings.ts';
import type { ReportedFinding } from './reports.ts';

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
export async function findFinding(statements: Statements, id: string): Promise<FindingIdentity> {
  const [finding] = (await readFindings({ statements }, { ids: [id] }))?.findings ?? [];
  if (!finding)
    throw new OperatorError(
      `The last report of doctor has no finding ${id}. Check again, and see which it has: npx backoffice doctor`,
    );
  const { check, server, tenant, problem } = finding;
  return { check, server, tenant, problem };
}

/** Returns what `--fix` would repair of the last report. @param ids the only findings; none: all */
export async function listRepairs(statements: Statements, ids: readonly string[]): Promise<ReportedFinding[]> {
  const found = await readFindings({ statements }, ids.length > 0 ? { ids } : {});
  return (found?.findings ?? []).filter(({ repairable, fixed, accepted }) => repairable && !fixed && !accepted);
}

/**
 * Accepts a finding of the last report: from now on it makes no check fail, and `--fix` leaves it alone. A second
 * acceptance replaces the first.
 * @param isDryRun true to change nothing
 * @throws {OperatorError} as `findFinding`
 */
export async function acceptFinding(
  control: Statements,
  id: string,
  reason: string,
  isDryRun: boolean,
): Promise<FindingIdentity> {
  const finding = await findFinding(control, id);
  const { check, server, tenant, problem } = finding;
  if (isDryRun) return finding;
  await control.execute(
    `insert into accepted_findings (id, kind, server, tenant, tenant_id, problem, reason, accepted_by)
     values (?, ?, ?, ?, (select id from tenants where slug = ?), ?, ?, ?)
     on conflict (id) do update
       set reason = excluded.reason, accepted_by = excluded.accepted_by, accepted_at = now()`,
    [id, check, server, tenant, tenant, problem, reason, operatorName()],
  );
  return finding;
}

/** Takes an acceptance back, unless it is a dry run. @throws {OperatorError} when the finding was not accepted */
export async function reopenFinding(control: Statements, id: string, isDryRun: boolean): Promise<FindingIdentity> {
  const [finding] = await control.execute<FindingIdentity[]>(
    'select kind as check, server, tenant, problem from accepted_findings where id = ?',
    [id],
  );
  if (!finding) throw new OperatorError(`No finding ${id} was accepted. See which: npx backoffice doctor`);
  if (!isDryRun) await control.execute('delete from accepted_findings where id = ?', [id]);
  return finding;
}
