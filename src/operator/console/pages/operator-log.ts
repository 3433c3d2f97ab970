import { type Html, html } from '../../../docs/html.ts';
import { listActions } from '../../tenants/list-actions.ts';
import { lastRoutineRuns } from '../../tenants/routine-runs.ts';
import type { PageRequest } from '../console-services.ts';
import type { Offered } from '../offered.ts';
import { statusText } from '../run-view.ts';
import { none, state, table, tenantLink, time } from '../view.ts';

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
      html`${statusText(run)}`,
      time(run.startedAt),
      run.by ? html`${run.by}` : none,
    ]),
  empty: html`This console has run nothing yet.`,
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
    html`${action.operator}`,
    html`${action.command}`,
    tenantLink(action.slug),
    html`${state(action.state)}${action.error ? html` <span class="cause">${action.error.slice(0, 160)}</span>` : ''}`,
    action.reason ? html`${action.reason}` : none,
    withText(action.arguments),
  ]),
  empty: html`No operator changed anything${slug || operator || command ? ' of this kind' : ''}.`,
})}
<h2>Timers</h2>
${table({
  caption: 'The last run of each command that timers run',
  columns: ['Command', 'Outcome', 'When', 'By'],
  rows: timers.map(timer => [
    html`${timer.command}`,
    state(timer.state),
    time(timer.startedAt),
    html`${timer.operator}`,
  ]),
  empty: html`No timer has run yet.`,
})}`;
  return { title: 'Log', main };
}

function filterInput(name: string, label: string, value: string | undefined): Html {
  return html`<label for="by-${name}">${label}</label><input type="text" id="by-${name}" name="${name}" value="${value}" autocomplete="off" spellcheck="false">`;
}

function withText(values: Readonly<Record<string, unknown>>): Html {
  const texts = Object.entries(values).map(([name, value]) => `${name}=${[value].flat().join(',')}`);
  const text = texts.join(' ');
  return text === '' ? none : html`${text.length > 120 ? `${text.slice(0, 120)}…` : text}`;
}
