import { type Html, html } from '../../../docs/html.ts';
import { lastRoutineRuns, listActions } from '../../tenants/list-actions.ts';
import type { PageRequest } from '../console-services.ts';
import { cause, shorten, state } from '../format.ts';
import type { Offer } from '../offered.ts';
import { statusText } from '../run-view.ts';
import { table } from '../view.ts';

const maxActions = 100;
const maxOwnRuns = 20;

/** The commands that timers run, as their definitions say. */
export function routineCommands(offered: Offer): string[] {
  return [...offered.values()].filter(({ operation }) => operation.isRoutine).map(({ operation: { name } }) => name);
}

/** Who did what, when and why; what runs now; and when timers ran. */
export async function logPage({ services: { control, offered, runs }, query }: PageRequest) {
  const [slug, operator, command, all] = ['slug', 'operator', 'command', 'all'].map(query);
  const changes = await listActions(control, { slug, operator, command, all: all === 'on', limit: maxActions });
  const timers = await lastRoutineRuns(control, routineCommands(offered));
  const main = html`${table(
    'Runs of this console',
    runs.list.slice(0, maxOwnRuns),
    'This console has run nothing yet.',
    [
      [
        'Run',
        ({ id, isPlan, form }) =>
          html`<a href="/runs/${id}">${isPlan ? 'plan of ' : ''}${form.operation.name} ${form.texts.slug?.join(' ')}</a>`,
      ],
      ['State', ({ outcome }) => state(outcome ?? 'running')],
      ['How far', statusText],
      'startedAt',
      'by',
    ],
  )}
<h2>What operators changed</h2>
<form class="filters" action="/log">
${filterInput('slug', 'Tenant', slug)}${filterInput('operator', 'Operator', operator)}${filterInput('command', 'Command', command)}
<label><input type="checkbox" name="all" value="on"${all === 'on' ? html` checked` : ''}> also refused ones</label>
<button>Filter</button></form>
${table(`Changes: the newest ${maxActions} at most`, changes, 'There is no such change.', [
  ['When', 'startedAt'],
  ['Who', 'operator'],
  'command',
  'slug',
  ['Outcome', ({ state: is, error }) => html`${state(is)} ${error ? cause(error) : ''}`],
  'reason',
  ['With', action => withText(action.arguments)],
])}
<h2>Timers</h2>
${table('The last run of each command that timers run', timers, 'No timer has run yet.', [
  'command',
  ['Outcome', 'state'],
  ['When', 'startedAt'],
  ['By', 'operator'],
])}`;
  return { title: 'Log', main };
}

function filterInput(name: string, label: string, value: string | undefined): Html {
  return html`<label for="by-${name}">${label}</label><input type="text" id="by-${name}" name="${name}" value="${value}" autocomplete="off" spellcheck="false">`;
}

function withText(values: Readonly<Record<string, unknown>>): string {
  const texts = Object.entries(values).map(([name, value]) => `${name}=${[value].flat().join(',')}`);
  return shorten(texts.join(' '), 120);
}
