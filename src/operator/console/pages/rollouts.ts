import { type Html, html } from '../../../docs/html.ts';
import { OperatorError } from '../../../log/operator-error.ts';
import { readFailing } from '../../schema/fleet-status.ts';
import { failureCauses, listRuns, type RunSummary, readRun, runOutcomes, runWaves } from '../../schema/list-runs.ts';
import { linkCommands } from '../command-links.ts';
import type { ConsolePage } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { code, durationText, none, numberText, shorten, state, textBlock, time } from '../format.ts';
import { operationLink, rolloutLink, tenantLink } from '../links.ts';
import type { Offer } from '../offered.ts';
import { actions, facts, pageNumber, pager, table } from '../view.ts';

const maxRuns = 30;
const maxFailing = 20;
const maxOutcomes = 100;
const retry = operationLink('migrate', 'Retry what failed', { retryFailed: 'on' });

/** The tenants whose last migration failed, and the migration runs, the newest first. */
export async function rolloutsPage({ services: { control }, query }: PageRequest) {
  const page = pageNumber(query('page'));
  const { failing, total } = await readFailing(control, maxFailing, (page - 1) * maxFailing);
  const empty = html`There was no migration run. ${operationLink('migrate', 'Show what one would do', { all: 'on' })}`;
  const main = html`<p>A run brings tenants to the version of this build. Begin with some that you choose, look at them, then promote to all. The plan shows the SQL.</p>
${actions(
  operationLink('migrate', 'Migrate chosen tenants first'),
  operationLink('migrate', 'Promote to all', { all: 'on' }),
  operationLink('migrate', 'All, two canaries first', { all: 'on', canary: '2', maxFailures: '5' }),
  retry,
  operationLink('rollback', 'Roll one tenant back'),
)}
${
  total > 0
    ? html`${table(`Tenants whose last migration failed (${numberText(total)})`, failing, 'There are fewer pages.', [
        'slug',
        'version',
        ['Run', ({ run }) => rolloutLink(run)],
        ['Error', ({ error }) => shorten(error)],
        ['What to do', migrateAgain],
      ])}${pager('/rollouts', {}, page, maxFailing, total)}`
    : ''
}
${table('Migration runs', await listRuns(control, maxRuns), empty, [
  ['Run', ({ id }) => rolloutLink(id)],
  'state',
  ['To version', 'head'],
  'tenants',
  ['Outcomes', outcomesView],
  'startedAt',
  ['By', 'requestedBy'],
])}`;
  return { title: 'Rollouts', main };
}

/** One migration run: its waves, its failures by cause, and the outcome of each tenant. */
export async function rolloutPage({ services, params: { id = '' } }: PageRequest): Promise<ConsolePage> {
  const { control, runs, offered } = services;
  if (!/^\d{1,15}$/.test(id)) throw new OperatorError(`There is no run ${id}`);
  const run = await readRun(control, Number(id));
  const waves = await runWaves(control, run.id);
  const causes = await failureCauses(control, run.id);
  const tenants = await runOutcomes(control, run.id, maxOutcomes);
  const done = run.tenants - (run.outcomes.pending ?? 0) - (run.outcomes.running ?? 0);
  const own = runs.running.find(({ form, isPlan }) => form.operation.name === 'migrate' && !isPlan);
  const promote = operationLink('migrate', run.state === 'succeeded' ? 'Promote to all' : 'Resume with all', {
    all: 'on',
  });
  const main = html`${facts(
    ['State', state(run.state)],
    ['To version', code(run.head)],
    ['By', run.requestedBy],
    ['Started', time(run.startedAt)],
    ['Took', took(run)],
    ['Outcomes', outcomesView(run)],
  )}
<progress max="${Math.max(1, run.tenants)}" value="${done}" aria-label="Tenants done">${done} of ${run.tenants}</progress>
${
  run.state !== 'running'
    ? actions(...(run.state === 'succeeded' ? [] : [retry]), promote)
    : own
      ? actions(html`<a class="do" href="/runs/${own.id}">Halt it, or follow it</a>`)
      : html`<p class="hint">The operator who started it can end it: in the console that runs it, or with Ctrl-C.</p>`
}
${table('Waves', waves, 'No tenant had to be migrated.', [
  ['Wave', ({ isCanary }) => (isCanary ? 'Canaries' : waves.length > 1 ? 'All others' : 'All at once')],
  'tenants',
  ['Outcomes', outcomesView],
  'startedAt',
  ['Took', took],
])}
${causes.length > 0 ? html`<h2>Failures by cause</h2>${causes.map(cause => causeView(cause, offered))}` : ''}
${table(
  run.tenants > maxOutcomes
    ? `The first ${maxOutcomes} of ${numberText(run.tenants)} tenants, failures first`
    : 'Tenants',
  tenants,
  'It had no tenant.',
  [
    'slug',
    ['Outcome', 'state'],
    'from',
    'to',
    ['Took', ({ ms }) => ms && `${ms} ms`],
    ['What to do', outcome => remedies[outcome.state]?.(outcome)],
  ],
)}`;
  return { title: `Run ${run.id}`, above: [['/rollouts', 'Rollouts']], main };
}

const migrateAgain = ({ slug }: { slug: string }): Html => operationLink('migrate', 'Migrate again', { slug });

const remedies: Readonly<Record<string, typeof migrateAgain>> = {
  failed: migrateAgain,
  migrated: ({ slug }) => operationLink('rollback', 'Roll back', { slug }),
};

function causeView({ error, tenants, slugs }: Awaited<ReturnType<typeof failureCauses>>[number], offered: Offer): Html {
  const links = slugs.map((slug, at) => html`${at > 0 ? ', ' : ''}${tenantLink(slug)}`);
  return html`<section><p>${state('failed')} ${numberText(tenants)} ${tenants === 1 ? 'tenant' : 'tenants'}: ${links}${tenants > slugs.length ? ' …' : ''}</p>
${textBlock(linkCommands(error, offered), 'Error', 'note')}</section>`;
}

function took({ startedAt, finishedAt }: { startedAt: string | null; finishedAt: string | null }): string | null {
  return startedAt && finishedAt && durationText(Date.parse(finishedAt) - Date.parse(startedAt));
}

function outcomesView({ outcomes }: Pick<RunSummary, 'outcomes'>): Html {
  const entries = Object.entries(outcomes);
  if (entries.length === 0) return none;
  return html`${entries.map(([name, count], at) => html`${at > 0 ? ', ' : ''}${numberText(count)} ${state(name)}`)}`;
}
