import { type Html, html } from '../../../docs/html.ts';
import { listActions } from '../../tenants/list-actions.ts';
import { lastRoutineRuns } from '../../tenants/routine-runs.ts';
import type { PageRequest } from '../console-services.ts';
import type { Offered } from '../offered.ts';
import { statusText } from '../run-view.ts';
import { shorten, state, table, tenantLink, time } from '../view.ts';

const maxActions = 100;
const maxOwnRuns = 20;

/** The commands that timers run, as their definitions say. */
export function routineCommands(offered: ReadonlyMap<string, Offered>): string[] {
  return [...offered.values()].filter(({ operation }) => operation.isRoutine).map(({ operation: { name } }) => name);
}

/** Who did what, when and why; what runs now; and when timers ran. */
export async function logPage({ services: { control, offered, runs }, query }: PageRequest) {
  const [slug, operator, command, all] = ['slug', 'operator', 'command', 'all'].map(query);
  const actions = await listActions(control, { slug, operator, command, all: all === 'on', limit: maxActions });
  const timers = await lastRoutineRuns(control, routineCommands(offered));
  const main = html`<h1>Log</h1>
${table({
  caption: 'Runs of this console',
  columns: ['Run', 'State', 'How far', 'Started', 'By'],
  rows: runs.list
    .slice(0, maxOwnRuns)
    .map(run => [
      html`<a href="/runs/${run.id}">${run.isPlan ? 'plan of ' : ''}${run.form.operation.name} ${run.form.texts.slug?.join(' ')}</a>`,
      state(run.command.outcome ?? 'running'),
      statusText(run),
      time(run.startedAt),
      run.by,
    ]),
  empty: 'This console has run nothing yet.',
})}
<h2>What operators changed</h2>
<form class="filters" action="/log">
${filterInput('slug', 'Tenant', slug)}${filterInput('operator', 'Operator', operator)}${filterInput('command', 'Command', command)}
<label><input type="checkbox" name="all" value="on"${all === 'on' ? html` checked` : ''}> also refused ones</label>
<button>Filter</button></form>
${table({
  caption: actions.length === maxActions ? `The newest ${maxActions} changes` : 'Changes',
  columns: ['When', 'Who', 'Command', 'Tenant', 'Outcome', 'Reason', 'With'],
  rows: actions.map(action => [
    time(action.startedAt),
    action.operator,
    action.command,
    tenantLink(action.slug),
    html`${state(action.state)}${action.error ? html` <span class="cause">${shorten(action.error)}</span>` : ''}`,
    action.reason,
    withText(action.arguments),
  ]),
  empty: html`No operator changed anything${slug || operator || command ? ' of this kind' : ''}.`,
})}
<h2>Timers</h2>
${table({
  caption: 'The last run of each command that timers run',
  columns: ['Command', 'Outcome', 'When', 'By'],
  rows: timers.map(timer => [timer.command, state(timer.state), time(timer.startedAt), timer.operator]),
  empty: 'No timer has run yet.',
})}`;
  return { title: 'Log', main };
}

function filterInput(name: string, label: string, value: string | undefined): Html {
  return html`<label for="by-${name}">${label}</label><input type="text" id="by-${name}" name="${name}" value="${value}" autocomplete="off" spellcheck="false">`;
}

function withText(values: Readonly<Record<string, unknown>>): string {
  const texts = Object.entries(values).map(([name, value]) => `${name}=${[value].flat().join(',')}`);
  return shorten(texts.join(' '), 120);
}
