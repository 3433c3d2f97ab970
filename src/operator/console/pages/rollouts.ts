import { type Html, html } from '../../../docs/html.ts';
import { OperatorError } from '../../../log/operator-error.ts';
import { failureCauses, listRuns, type RunSummary, readRun, runOutcomes } from '../../schema/list-runs.ts';
import { breadcrumbs } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { actions, durationText, facts, none, operationLink, state, table, tenantLink, time } from '../view.ts';

const maxRuns = 30;
const maxOutcomes = 100;

/** The migration runs, the newest first. */
export async function rolloutsPage({ services: { control } }: PageRequest) {
  const runs = await listRuns(control, maxRuns);
  const main = html`<h1>Rollouts</h1>
<p>A run brings tenants to the version of this build. Begin with some that you choose, look at them, then promote to all.</p>
${actions(
  operationLink('migrate', 'Migrate chosen tenants first'),
  operationLink('migrate', 'Promote to all', { all: 'on' }),
  operationLink('migrate', 'All, two canaries first', { all: 'on', canary: '2', maxFailures: '5' }),
  operationLink('migrate', 'Retry what failed', { retryFailed: 'on' }),
  operationLink('rollback', 'Roll one tenant back'),
)}
${table({
  caption: 'Migration runs',
  columns: ['Run', 'State', 'To version', { name: 'Tenants', isNumber: true }, 'Outcomes', 'Started', 'By'],
  rows: runs.map(run => [
    html`<a href="/rollouts/${run.id}">Run ${run.id}</a>`,
    state(run.state),
    html`<code>${run.head.slice(0, 4)}</code>`,
    run.tenants.toLocaleString('en'),
    outcomes(run),
    time(run.startedAt),
    run.requestedBy,
  ]),
  empty: html`There was no migration run. ${operationLink('migrate', 'Show what one would do', { all: 'on' })}`,
})}`;
  return { title: 'Rollouts', main };
}

/** One migration run: its failures by cause, and the outcome of each tenant. */
export async function rolloutPage({ services: { control }, params: { id = '' } }: PageRequest) {
  if (!/^\d{1,15}$/.test(id)) throw new OperatorError(`There is no run ${id}`);
  const run = await readRun(control, Number(id));
  const causes = await failureCauses(control, run.id);
  const tenants = await runOutcomes(control, run.id, maxOutcomes);
  const done = run.tenants - (run.outcomes.pending ?? 0) - (run.outcomes.running ?? 0);
  const isPlain = run.state === 'running' || run.state === 'succeeded';
  const main = html`${breadcrumbs(['/rollouts', 'Rollouts'])}
<h1>Run ${run.id}</h1>
${facts([
  ['State', state(run.state)],
  ['To version', html`<code>${run.head}</code>`],
  ['By', run.requestedBy],
  ['Started', time(run.startedAt)],
  ['Took', run.finishedAt && durationText(Date.parse(run.finishedAt) - Date.parse(run.startedAt))],
  ['Outcomes', outcomes(run)],
])}
<progress max="${Math.max(1, run.tenants)}" value="${done}" aria-label="Tenants done">${done} of ${run.tenants}</progress>
${isPlain ? '' : actions(operationLink('migrate', 'Retry what failed', { retryFailed: 'on' }), operationLink('migrate', 'Resume with all', { all: 'on' }))}
${run.state === 'running' ? html`<p class="hint">The operator who started it can end it: in the console that runs it, or with Ctrl-C.</p>` : ''}
${causes.length > 0 ? html`<h2>Failures by cause</h2>${causes.map(causeView)}` : ''}
${table({
  caption: run.tenants > maxOutcomes ? `The first ${maxOutcomes} of ${run.tenants} tenants, failures first` : 'Tenants',
  columns: ['Tenant', 'Outcome', 'From', 'To', { name: 'Took', isNumber: true }, 'What to do'],
  rows: tenants.map(({ slug, state: is, from, to, ms }) => [
    tenantLink(slug),
    state(is),
    html`<code>${from?.slice(0, 4) ?? '–'}</code>`,
    html`<code>${to?.slice(0, 4) ?? '–'}</code>`,
    html`${ms === null ? '–' : `${ms} ms`}`,
    is === 'failed'
      ? operationLink('migrate', 'Migrate again', { slug })
      : is === 'migrated'
        ? operationLink('rollback', 'Roll back', { slug })
        : null,
  ]),
  empty: 'It had no tenant.',
})}`;
  return { title: `Run ${run.id}`, main };
}

function causeView({ error, tenants, slugs }: Awaited<ReturnType<typeof failureCauses>>[number]): Html {
  const links = slugs.map((slug, at) => html`${at > 0 ? ', ' : ''}${tenantLink(slug)}`);
  return html`<section class="cause-of-failure"><p>${state('failed')} ${tenants} ${tenants === 1 ? 'tenant' : 'tenants'}: ${links}${tenants > slugs.length ? ' …' : ''}</p>
<pre class="text" tabindex="0" role="group" aria-label="Error">${error}</pre></section>`;
}

function outcomes({ outcomes }: RunSummary): Html {
  const entries = Object.entries(outcomes);
  if (entries.length === 0) return none;
  return html`${entries.map(([name, count], at) => html`${at > 0 ? ', ' : ''}${count.toLocaleString('en')} ${state(name)}`)}`;
}
