import { type Html, html } from '../../../docs/html.ts';
import { lastRoutineRuns, listActions } from '../../tenants/list-actions.ts';
import type { PageRequest } from '../console-page.ts';
import { shorten, state } from '../format.ts';
import type { Offer } from '../offered.ts';
import { runName, runPath, runState, statusText } from '../run-view.ts';
import { table } from '../view.ts';

const maxActions = 100;
const maxOwnRuns = 20;

/** The commands that timers run, as their definitions say. */
export function routineCommands(offered: Offer): string[] {
  return [...offered.values()].filter(({ operation }) => operation.isRoutine).map(({ operation: { name } }) => name);
}

/** Who did what, when and why; what runs now; and when timers ran. */
export async function logPage({ control, offered, runs, query }: PageRequest) {
  const [slug, operator, command, all] = ['slug', 'operator', 'command', 'all'].map(query);
  const changes = await listActions(control, { slug, operator, command, all: all === 'on', limit: maxActions });
  const timers = await lastRoutineRuns(control, routineCommands(offered));
  const main = html`${table(
    'Runs of this console',
    runs.list.slice(0, maxOwnRuns),
    'This console has run nothing yet.',
    [
      ['Run', run => html`<a href="${runPath(run)}">${runName(run)}</a>`],
      ['State', runState],
      ['How far', statusText],
      'startedAt',
      ['By', ({ start }) => start.by],
    ],
  )}
<form class="actions" action="/log">
${filterInput('slug', 'Tenant', slug)}${filterInput('operator', 'Operator', operator)}${filterInput('command', 'Command', command)}
<label><input type="checkbox" name="all" value="on"${all === 'on' ? html` checked` : ''}> also refused ones</label>
<button>Filter</button></form>
${table(`What operators changed: the newest ${maxActions} at most`, changes, 'There is no such change.', [
  'startedAt',
  'operator',
  'command',
  'slug',
  ['Outcome', ({ state: is, error }) => html`${state(is)} ${shorten(error ?? '')}`],
  'reason',
  ['With', action => withText(action.arguments)],
])}
${table('The last run of each command that timers run', timers, 'No timer has run yet.', ['command', 'state', 'startedAt', 'operator'])}`;
  return { title: 'Log', main };
}

function filterInput(name: string, label: string, value: string | undefined): Html {
  return html`<label for="by-${name}">${label}</label><input type="text" id="by-${name}" name="${name}" value="${value}" autocomplete="off" spellcheck="false">`;
}

/** What an action was done with: `to=second`. */
export function withText(values: Readonly<Record<string, unknown>>): string {
  const texts = Object.entries(values).map(([name, value]) => `${name}=${[value].flat().join(',')}`);
  return shorten(texts.join(' '), 120);
}
