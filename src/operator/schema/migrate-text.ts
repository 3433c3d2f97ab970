import { hasFailed } from '../command/run-fleet.ts';
import { tableText } from '../command/text-table.ts';
import type { BlockingProcess } from './blocking-processes.ts';
import { blockingText } from './confirm-blocking.ts';
import type { planRun } from './dry-run.ts';
import type { RunReport, TenantOutcome } from './migrate-tenants.ts';

/** Formats the outcome of one tenant as one line. */
export function outcomeText({ slug, state, from, to, ms, error }: TenantOutcome): string {
  if (state === 'failed') return `${slug}: failed at ${from ?? 'no version'}: ${error}`;
  if (state === 'current') return `${slug}: is at ${to} (${ms} ms)`;
  return `${slug}: ${from ?? 'no version'} → ${to} (${ms} ms)`;
}

/** Formats the end of a run: the failed tenants as a table, and a line of counts. */
export function reportText({ state, outcomes, skipped }: RunReport): string {
  if (outcomes.length === 0 && skipped === 0) return 'Nothing to do.';
  const count = (wanted: string) => outcomes.filter(outcome => outcome.state === wanted).length;
  const failures = outcomes.filter(hasFailed).map(({ slug, from, error }) => ({ tenant: slug, at: from, error }));
  const counts = [`${count('migrated')} migrated`, `${failures.length} failed`];
  if (count('current') > 0) counts.push(`${count('current')} current`);
  if (skipped > 0) counts.push(`${skipped} not started`);
  return [
    ...(failures.length > 0 ? ['', tableText(failures, ''), ''] : []),
    `${state === 'halted' ? 'Halted: ' : ''}${counts.join(', ')}.`,
    ...(failures.length > 0
      ? ['When the cause is gone, migrate the failed tenants again:', '  npx backoffice migrate --retry-failed']
      : []),
    ...(skipped > 0 ? ['Migrate the rest:', '  npx backoffice migrate --all'] : []),
  ].join('\n');
}

/** Formats what a run would do: SQL, with the tenants it is for in SQL comments. */
export function plansText({
  head,
  plans,
  blockedBy,
}: Awaited<ReturnType<typeof planRun>> & { blockedBy: BlockingProcess[] }): string {
  if (plans.length === 0) return 'Nothing to do.';
  const blocked = blockedBy.length > 0 ? [`-- refused: ${blockingText(blockedBy)}`, ''] : [];
  const lines = plans.flatMap(({ version, tenants, migrations, note }) => [
    `-- ${version ?? 'unknown version'}${note ? '' : ` → ${head}`}: ${tenants.length} (${tenants.join(', ')})`,
    ...(note ? [`-- ${note}`] : []),
    ...migrations.flatMap(({ name, sql, compatible }) => [
      `-- ${name}${compatible ? ' (compatible: the tenants stay in service)' : ''}`,
      ...sql.map(statement => `${statement.trim()};`),
    ]),
    '',
  ]);
  return [...blocked, ...lines].join('\n');
}
