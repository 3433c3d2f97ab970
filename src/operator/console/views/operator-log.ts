import { type Html, html } from '../../../lib/html/html.ts';
import { pageText } from '../../command/list-parts.ts';
import { parseTime } from '../../command/operation-fields.ts';
import { type Candidate, readStoredValues } from '../../command/stored-values.ts';
import { lastRoutineRuns, pageActions } from '../../registry/list-actions.ts';
import type { PageRequest } from '../console-page.ts';
import { localTime } from '../form-values.ts';
import { shorten, state, utc } from '../format.ts';
import { olderLinks } from '../links.ts';
import type { Offer } from '../offered.ts';
import { runName, runPath, runState, statusText } from '../run-view.ts';
import { table } from '../view.ts';

const pageSize = 50;
const maxOwnRuns = 20;

/** The commands that timers run, as their definitions say. */
export function routineCommands(offered: Offer): string[] {
  return [...offered.values()]
    .filter(({ operation }) => operation.handling.isRoutine)
    .map(({ operation: { name } }) => name);
}

/** The log: the commands of operators, those that run now, and the runs of timers. */
export async function logPage({ control, offered, runs, query }: PageRequest) {
  const [slug, operator, command, all] = ['slug', 'operator', 'command', 'all'].map(query);
  const [since, until] = ['since', 'until'].map(name => readTime(query(name)));
  const filter = { slug, operator, command, since, until, all: all === 'on' };
  const page = await pageActions(control, {
    ...filter,
    before: readNumber(query('before')),
    limit: pageSize,
  });
  const timers = await lastRoutineRuns(control, routineCommands(offered));
  const own = runs.list.slice(0, maxOwnRuns);
  const [slugs, operators, commands] = await Promise.all(
    (['slug', 'operator', 'command'] as const).map(kind =>
      readStoredValues(control.statements, kind, '', undefined),
    ),
  );

  const main = html`${table(
    own.length < runs.list.length
      ? `Runs of this console: ${own.length} of ${runs.list.length}`
      : 'Runs of this console',
    own,
    'This console has run nothing yet.',
    [
      ['Run', run => html`<a href="${runPath(run)}">${runName(run)}</a>`],
      ['State', runState],
      ['How far', statusText],
      'startedAt',
      ['By', ({ start }) => start.by],
    ],
  )}
<h2 id="changes">What operators changed</h2>
<form class="actions" action="/log#changes">
${timeInput('since', 'From (UTC)', since)}${timeInput('until', 'to', until)}
${filterInput('slug', 'Tenant', slug, slugs)}${filterInput('operator', 'Operator', operator, operators)}${filterInput('command', 'Command', command, commands)}
<label class="pair"><input type="checkbox" name="all" value="on"${all === 'on' ? html` checked` : ''}> also refused ones</label>
<button>Filter</button> <a href="/log">All</a></form>
${table(
  `Changes, the newest first: ${pageText(page) ?? `all ${page.total}`}`,
  page.items,
  'There is no such change.',
  [
    ['Time', ({ startedAt }) => html`<time datetime="${startedAt}">${utc(startedAt)}</time>`],
    'operator',
    'command',
    'slug',
    ['Outcome', ({ state: is, error }) => html`${state(is)} ${shorten(error ?? '')}`],
    'reason',
    ['With', action => withText(action.arguments)],
  ],
)}
${olderLinks('/log', { slug, operator, command, since, until, all }, page)}
${table('The last run of each command that timers run', timers, 'No timer has run yet.', ['command', 'state', 'startedAt', 'operator'])}`;
  return { title: 'Log', main };
}

/**
 * Reads a time of an address: as an input of a browser has it, in UTC, or as the command line
 * takes it.
 */
function readTime(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  try {
    return parseTime(localTime.test(text) ? `${text}Z` : text);
  } catch {
    return undefined;
  }
}

/** Reads the number of an item; undefined for anything else. */
export function readNumber(text: string | undefined): number | undefined {
  return /^\d{1,15}$/.test(text ?? '') ? Number(text) : undefined;
}

function timeInput(name: string, label: string, value: string | undefined): Html {
  return html`<span class="pair"><label for="by-${name}">${label}</label><input type="datetime-local" step="1" id="by-${name}" name="${name}" value="${value?.slice(0, 19)}"></span>`;
}

function filterInput(
  name: string,
  label: string,
  value: string | undefined,
  candidates: readonly Candidate[] = [],
): Html {
  const options = candidates.map(each => html`<option value="${each.value}"></option>`);
  return html`<span class="pair"><label for="by-${name}">${label}</label><input type="text" id="by-${name}" name="${name}" value="${value}" list="${name}-list" autocomplete="off" spellcheck="false"><datalist id="${name}-list">${options}</datalist></span>`;
}

/** Returns the arguments of an action as text: `to=second`. */
export function withText(values: Readonly<Record<string, unknown>>): string {
  const texts = Object.entries(values).map(
    ([name, value]) => `${name}=${[value].flat().join(',')}`,
  );
  return shorten(texts.join(' '), 120);
}
