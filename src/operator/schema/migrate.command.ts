import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { defineOperation } from '../command/operation.ts';
import { amount, argumentList, flag, type Values } from '../command/operation-fields.ts';
import { hasFailed, reportOutcomes } from '../command/run-fleet.ts';
import { tableText } from '../command/text-table.ts';
import { blockingText, confirmBlocking, despiteRunning, planBlocking } from './confirm-blocking.ts';
import type { PlannedRun, RunReport, TenantOutcome } from './migrate-tenants.ts';
import { failureLines } from './migration-failure.ts';
import type { RunRequest } from './migration-runs.ts';

const fields = {
  slug: argumentList('slug', {
    label: 'Tenants',
    description: 'only these tenants',
    unless: ['all', 'retryFailed'],
  }),
  all: flag('every tenant', { unless: ['slug', 'retryFailed'] }),
  concurrency: amount('tenants', 'tenants migrated at the same time on each server', {
    label: 'At the same time',
    default: 4,
    isAdvanced: true,
  }),
  canary: amount('tenants', 'migrate so many tenants first, and stop if one of them fails', {
    label: 'Canaries',
  }),
  maxFailures: amount('failures', 'start no further tenant after so many failures', {
    label: 'Stop after',
    isAdvanced: true,
  }),
  retryFailed: flag('only tenants whose last migration failed', {
    label: 'Retry what failed',
    unless: ['slug', 'all'],
  }),
  despiteRunning,
};

const migrate = defineOperation({
  name: 'migrate',
  help: {
    description: 'bring tenant databases to the version of this build',
    examples: [
      'migrate --all --dry-run # print what would run, and for which tenants',
      'migrate --all --canary 2 # migrate two tenants first, and stop if one of them fails',
      'migrate acme globex # only these tenants',
      'migrate --retry-failed # migrate the failed tenants again',
    ],
    more: `Each tenant is migrated in one transaction, and its schema is compared with the template before the commit.
Meanwhile requests for that tenant get 503 migration_pending, unless all its migrations are compatible with the
running build; all other tenants are served. A tenant whose migration fails stays as it was, and the run continues
with the others. A tenant that is already at the version of this build costs no connection.

The run is refused while a running process serves a tenant that it could not serve afterwards: the process has an
older build, and a migration is not compatible with it. A process whose last beat is 5 s old does not count.

Run the command again after an interruption of any kind: it does what is left, and nothing twice. Two runs at the
same time share the work. Ctrl-C starts no further tenant and waits for the running migrations.

bin/backoffice status shows what failed, and why.`,
    exitCodes:
      '0 when all tenants are at the version of this build, 1 when some are not, 2 for wrong usage',
    dryRun: 'print the SQL that would run, and for which tenants; opens no tenant database',
    json: 'print one JSON line for each tenant on stdout (with --dry-run: one JSON document)',
  },
  fields,
  effect: 'changes',
  handling: {
    isTraced: true,
    interrupt: { text: 'the running migrations', isIdleBeforeCount: true },
  },
  async plan(values, { installation }) {
    const request = await requestOf(values, installation);
    const { processesBlockingRun } = await import('./blocking-processes.ts');
    const { planRun } = await import('./migrate-tenants.ts');
    const blockedBy = await processesBlockingRun(installation, request);
    const plan = { ...(await planRun(installation, request)), blockedBy };
    const { hasFailed, lines } = planBlocking(blockedBy, blockingText, values.despiteRunning);
    const isUnknown = plan.plans.some(each => each.isUnknown);

    return {
      document: plan,
      text: () => plansText(plan, lines),
      hasFailed: hasFailed || isUnknown,
    };
  },
  async run(values, context) {
    const { installation, output, progress } = context;
    const request = await requestOf(values, installation);
    const { processesBlockingRun } = await import('./blocking-processes.ts');
    const { migrateTenants } = await import('./migrate-tenants.ts');
    const blockedBy = await processesBlockingRun(installation, request);
    await confirmBlocking(blockedBy, blockingText, values.despiteRunning, context);
    progress.step('reading the template');
    // A visible progress replaces these lines, and the report lists the failures.
    const isShown = (outcome: TenantOutcome): boolean => !progress.isVisible && !hasFailed(outcome);
    const report = await reportOutcomes(
      context,
      { hasFailed, isShown, text: outcomeText },
      observers =>
        migrateTenants(installation, request, {
          ...observers,
          onRun: id => output.text(() => `Run ${id}: bin/backoffice runs show ${id}`),
        }),
    );

    output.text(() => reportText(report));
    return report.state === 'succeeded';
  },
});

export const operations = [migrate];

/**
 * @throws {OperatorError} when no tenant is named, one that does not exist, or one beside all
 */
async function requestOf(
  { slug: slugs, all, despiteRunning: _, ...request }: Values<typeof fields>,
  installation: ControlStatements,
): Promise<RunRequest> {
  if (slugs.length === 0 ? !all && !request.retryFailed : all) {
    throw new OperatorError('Either name tenants, or give --all or --retry-failed', {
      usage: true,
    });
  }
  if (all || slugs.length === 0) return { ...request, slugs: undefined };
  const { requireTenants } = await import('./migration-runs.ts');
  await requireTenants(installation, slugs);
  return { ...request, slugs };
}

/** Formats the outcome of one tenant as one line. */
function outcomeText({ slug, state, from, to, ms, error }: TenantOutcome): string {
  if (state === 'failed') return `${slug}: failed at ${from ?? 'no version'}: ${error}`;
  if (state === 'current') return `${slug}: is at ${to} (${ms} ms)`;
  return `${slug}: ${from ?? 'no version'} → ${to} (${ms} ms)`;
}

/** Formats the end of a run: the failed tenants as a table, and a line of counts. */
function reportText({ state, outcomes, skipped }: RunReport): string {
  if (outcomes.length === 0 && skipped === 0) return 'Nothing to do.';

  const count = (wanted: string) => outcomes.filter(outcome => outcome.state === wanted).length;
  const failures = outcomes
    .filter(hasFailed)
    .map(({ slug, from, error }) => ({ tenant: slug, at: from, error }));

  const counts = [`${count('migrated')} migrated`, `${failures.length} failed`];
  if (count('current') > 0) counts.push(`${count('current')} current`);
  if (skipped > 0) counts.push(`${skipped} not started`);

  return [
    ...(failures.length > 0 ? ['', tableText(failures, ''), ''] : []),
    ...outcomes.flatMap(({ slug, failure }) => (failure ? failureLines(slug, failure) : [])),
    `${state === 'halted' ? 'Halted: ' : ''}${counts.join(', ')}.`,
    ...(outcomes.some(({ failure }) => failure && failure.differences.length > 0)
      ? ['Undo the differences first, or let doctor do it: bin/backoffice doctor']
      : []),
    ...(failures.length > 0
      ? [
          'When the cause is gone, migrate the failed tenants again:',
          '  bin/backoffice migrate --retry-failed',
        ]
      : []),
    ...(skipped > 0 ? ['Migrate the rest:', '  bin/backoffice migrate --all'] : []),
  ].join('\n');
}

/**
 * Formats what a run would do: SQL, with the tenants it is for in SQL comments.
 * @param notes about the whole run
 */
function plansText(
  { head, plans, canaries, refused }: PlannedRun,
  notes: readonly string[],
): string {
  if (plans.length === 0) return 'Nothing to do.';

  const lines = plans.flatMap(({ version, tenants, migrations, note }) => [
    `-- ${version ?? 'unknown version'}${note ? '' : ` → ${head}`}: ${tenants.length} (${tenants.join(', ')})`,
    ...(note ? [`-- ${note}`] : []),
    ...migrations.flatMap(({ name, sql, compatible }) => [
      `-- ${name}${compatible ? ' (compatible: the tenants stay in service)' : ''}`,
      ...sql.map(statement => `${statement.trim()};`),
    ]),
    '',
  ]);

  const foreseen = [
    ...(canaries.length > 0
      ? [`First: ${canaries.join(', ')}. The others follow if none of these fails`]
      : []),
    ...refused.map(
      ({ slug, finding, problem }) =>
        `Will fail: ${slug}, finding ${finding} of doctor: ${problem}`,
    ),
  ];

  return [...notes, ...foreseen]
    .map(note => `-- ${note}\n`)
    .concat(lines)
    .join('\n');
}
