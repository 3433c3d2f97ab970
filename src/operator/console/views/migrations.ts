import { type Html, html } from '../../../lib/html/html.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { pageText } from '../../command/list-parts.ts';
import { readFailingTenants } from '../../schema/fleet-status.ts';
import {
  failureCauses,
  pageRuns,
  type RunOutcome,
  readRun,
  runOutcomes,
  runWaves,
} from '../../schema/list-runs.ts';
import { logText, type MigrationFailure } from '../../schema/migration-failure.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { durationText, inlineCode, numberText, state, states, textBlock, time } from '../format.ts';
import {
  actions,
  migrationRunLink,
  olderLinks,
  operationLink,
  tenantLink,
  withQuery,
} from '../links.ts';
import { facts, pager, partOf, table } from '../view.ts';
import { readNumber } from './operator-log.ts';

const maxRuns = 30;
const maxFailing = 20;
const maxOutcomes = 100;
const retry = operationLink('migrate', 'Retry what failed', { retryFailed: 'on' });

/** The tenants whose last migration failed, and the migration runs, the newest first. */
export async function migrationsPage({ control, query }: PageRequest) {
  const part = partOf(query('page'), maxFailing);
  const { failing, total } = await readFailingTenants(control, part);
  const newest = await pageRuns(control, { limit: maxRuns, before: readNumber(query('before')) });

  const empty = html`There was no migration run. ${operationLink('migrate', 'Show what one would do', { all: 'on' })}`;
  const main = html`<p>A run brings tenants to the version of this build. Begin with some that you choose, look at them, then promote to all. The plan shows the SQL.</p>
${actions(
  operationLink('migrate', 'Migrate chosen tenants first'),
  operationLink('migrate', 'Promote to all', { all: 'on' }),
  operationLink('migrate', 'All, two canaries first', { all: 'on', canary: '2', maxFailures: '5' }),
  ...(total > 0 ? [retry] : []),
  operationLink('rollback', 'Roll one tenant back'),
)}
${table(`Tenants whose last migration failed (${total})`, failing, 'None has failed.', [
  'slug',
  'version',
  'run',
  'error',
  ['What to do', migrateAgain],
])}${pager('/migrations', {}, part, total)}
${table(`Migration runs: ${pageText(newest) ?? `all ${newest.total}`}`, newest.items, empty, [
  ['Run', ({ id }) => migrationRunLink(id)],
  'state',
  ['To version', 'head'],
  'tenants',
  'outcomes',
  'startedAt',
  ['By', 'requestedBy'],
])}${olderLinks('/migrations', {}, newest)}`;

  return { title: 'Migrations', main };
}

/** One migration run: its waves, its failures by cause, and the outcome of each tenant. */
export async function migrationRunPage({
  control,
  runs,
  params: { id = '' },
}: PageRequest): Promise<ConsolePage> {
  if (!/^\d{1,15}$/.test(id)) throw new OperatorError(`There is no run ${id}`);

  const run = await readRun(control, Number(id));
  const waves = await runWaves(control, run.id);
  const causes = await failureCauses(control, run.id);
  const tenants = await runOutcomes(control, run.id, maxOutcomes);

  const allDiffer =
    causes.length > 0 &&
    causes.every(({ failures }) => failures.every(({ failure }) => differs(failure)));

  const { pending = 0, running = 0, skipped = 0 } = run.outcomes;
  const done = run.tenants - pending - running - skipped;

  const own = runs.running.find(
    ({ form, start }) => form.operation.name === 'migrate' && !start.isPlan,
  );
  const promote = operationLink(
    'migrate',
    run.state === 'succeeded' ? 'Promote to all' : 'Resume with all',
    {
      all: 'on',
    },
  );

  const main = html`${facts(
    ['State', state(run.state)],
    ['To version', inlineCode(run.head)],
    ['By', run.requestedBy],
    ['Started', time(run.startedAt)],
    ['Took', took(run)],
    ['Outcomes', states(run.outcomes)],
  )}
<progress max="${Math.max(1, run.tenants)}" value="${done}" aria-label="Tenants done">${done} of ${run.tenants}</progress>
${
  run.state !== 'running'
    ? actions(...(run.state === 'succeeded' || allDiffer ? [] : [retry]), promote)
    : own
      ? actions(html`<a class="do" href="/runs/${own.id}">Halt it, or follow it</a>`)
      : html`<p class="hint">The operator who started it can end it: in the console that runs it, or with Ctrl-C. ${operationLink('status', 'See whether it still runs')}</p>`
}
${table('Waves', waves, 'No tenant had to be migrated.', [
  [
    'Wave',
    ({ isCanary }) => (isCanary ? 'Canaries' : waves.length > 1 ? 'All others' : 'All at once'),
  ],
  'tenants',
  'outcomes',
  'startedAt',
  ['Took', took],
])}
${causes.map(
  ({
    error,
    tenants,
    slugs,
    failures,
  }) => html`<h2>${state('failed')} ${numberText(tenants)} for this cause</h2>
<p>${slugs.map(slug => html`${tenantLink(slug)} `)}${tenants > slugs.length ? '…' : ''}</p>
${textBlock(error, 'Error', 'note bad')}
${failures.map(({ slug, failure }) => (failure ? failureView(slug, failure) : ''))}`,
)}
${table(
  run.tenants > maxOutcomes
    ? `The first ${maxOutcomes} of ${numberText(run.tenants)} tenants, failures first`
    : 'Tenants',
  tenants,
  'It had no tenant.',
  [
    'slug',
    'state',
    'from',
    'to',
    ['Took', 'ms'],
    ['What to do', outcome => remedies[outcome.state]?.(outcome)],
  ],
)}`;

  return { title: `Migration run ${run.id}`, above: [['/migrations', 'Migrations']], main };
}

const migrateAgain = ({ slug }: { slug: string }): Html =>
  operationLink('migrate', 'Migrate again', { slug });

/**
 * True for a failure that comes again until somebody has undone the differences of the schema.
 */
const differs = (failure: MigrationFailure | null): boolean =>
  failure !== null && failure.differences.length > 0;

const remedies: Readonly<Record<string, (outcome: RunOutcome) => Html>> = {
  failed: outcome =>
    differs(outcome.failure)
      ? html`<a href="${withQuery('/findings', { tenant: outcome.slug })}">Undo its differences first</a>`
      : migrateAgain(outcome),
  migrated: ({ slug }) => operationLink('rollback', 'Roll back', { slug }),
};

/**
 * Returns the facts about a failure: the statement, the place of more in the server's log, and
 * the statements that undo each difference.
 */
function failureView(
  slug: string,
  { sqlState, migration, statement, log, differences }: MigrationFailure,
): Html {
  const undo = differences.flatMap(({ text, sql }) => [
    `-- ${text}`,
    ...(sql?.map(each => `${each};`) ?? [
      '-- No statement undoes this: restore an archive of the tenant.',
    ]),
  ]);
  const where = facts(
    ['Tenant', tenantLink(slug)],
    ['SQLSTATE', inlineCode(sqlState)],
    ['Migration', inlineCode(migration)],
    ['More', log === null ? null : logText(log)],
  );

  return html`${statement === null ? '' : html`${where}${textBlock(statement, `The statement that failed for ${slug}`)}`}
${
  undo.length === 0
    ? ''
    : html`<h3>What undoes the differences of ${slug}, if nobody needs them</h3>${textBlock(undo.join('\n'), `SQL for ${slug}`)}
${actions(operationLink('doctor', 'Check again, and choose what is repaired'), html`<a href="${withQuery('/findings', { tenant: slug })}">Findings of ${slug}</a>`)}`
}`;
}

function took({
  startedAt,
  finishedAt,
}: {
  startedAt: string | null;
  finishedAt: string | null;
}): string | null {
  return startedAt && finishedAt && durationText(Date.parse(finishedAt) - Date.parse(startedAt));
}
