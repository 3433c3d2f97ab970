import { type Html, html } from '../../docs/html.ts';
import { linkCommands, type Offer } from './command-links.ts';
import { breadcrumbs } from './console-page.ts';
import type { FormError } from './form-values.ts';
import { commandView, errorSummary, fieldView } from './form-view.ts';
import { durationText, none, numberText, state, textBlock, time } from './format.ts';
import { operationPath } from './links.ts';
import type { Part, Text } from './running-command.ts';
import type { Run } from './runs.ts';
import { facts, table } from './view.ts';

/** What a page shows of a long result; the whole is a file. */
const maxShownRows = 200;
const maxShownLength = 20_000;

/** What a page of a run needs beside the run. */
export interface RunPage {
  readonly run: Run;
  /** Returns the token of a form by its path. */
  readonly tokenOf: (path: string) => string;
  readonly errors: readonly FormError[];
  readonly offered: Offer;
}

/** The page of a plan or of a run. Its middle part is sent again when something has changed. */
export function runView(page: RunPage): Html {
  const { run, errors } = page;
  return html`${heading(run)}
${errorSummary(errors)}
<p class="status" role="status" id="run-status" tabindex="-1">${statusText(run)}</p>
<div id="run" data-events="/runs/${run.id}/events"${run.command.outcome ? html` data-ended` : ''}>${runFragment(page)}</div>
${commandView(run.form)}`;
}

/** The page of a run for everybody but the visitor who has started it. */
export function othersView(run: Run): Html {
  return html`${heading(run)}
<p class="status" role="status">${statusText(run)}</p>
${runFacts(run)}
<p class="note">${run.by} alone sees its result. <a href="/log">The log</a> has what it changed.</p>
${commandView(run.form)}`;
}

function heading({ form, isPlan }: Run): Html {
  const { name } = form.operation;
  const slug = form.texts.slug?.length === 1 ? form.texts.slug[0] : undefined;
  return html`${breadcrumbs(['/operations', 'Commands'], [operationPath(name), name], ...(slug ? [[`/tenants/${encodeURIComponent(slug)}`, slug] as const] : []))}
<h1>${isPlan ? 'Plan: ' : ''}${name} ${slug}</h1>`;
}

function runFacts({ command: { outcome, endedAt, last }, startedAt, by, form }: Run): Html {
  return facts(
    ['State', state(outcome ?? 'running')],
    ['Started', time(startedAt)],
    ['Took', endedAt ? durationText(endedAt.getTime() - startedAt.getTime()) : last.step?.text],
    ...(by ? [['By', by] as const] : []),
    ['Reason', form.reason],
  );
}

/** One sentence about the whole of a run. */
export function statusText({ command, isPlan }: Run): string {
  const { outcome, isInterrupted } = command;
  const { count, step } = command.last;
  const failed = count?.failed ? `, ${numberText(count.failed)} failed` : '';
  const counted = count ? `${numberText(count.done)} of ${numberText(count.total)} done${failed}` : '';
  const sentences = {
    done: isPlan ? 'The plan is ready. Nothing was changed.' : 'It is done.',
    found: 'It is done, and found something.',
    failed: isInterrupted ? 'It was ended early.' : isPlan ? 'It would fail.' : 'It has failed.',
  };
  if (outcome) return `${sentences[outcome]} ${counted}`.trim();
  return isInterrupted ? `It ends early. ${counted}`.trim() : counted || `It runs${step ? `: ${step.text}` : ''}.`;
}

/** The part of the page that changes. */
export function runFragment(page: RunPage): Html {
  const { run } = page;
  const { command } = run;
  const { outcome, parts, notes } = command;
  const { count, plan } = command.last;
  return html`${runFacts(run)}
${count ? html`<progress max="${Math.max(1, count.total)}" value="${count.done}" aria-label="Done">${count.done} of ${count.total}</progress>` : ''}
${outcome === undefined && !command.isInterrupted ? cancelForm(page) : ''}
${notes.text ? textView(page, outcome === 'failed' ? 'Error' : 'Warnings', notes, 'notes') : ''}
${plan ? textView(page, 'Plan', { ...plan, lost: 0 }) : ''}
${parts.map(part => partView(page, part))}
${outcome === 'done' && run.isPlan && !plan?.hasFailed ? performForm(page) : ''}
${outcome === undefined ? '' : html`<p><a href="${formPath(run)}">${run.isPlan ? 'Change the values' : 'Fill in the form again'}</a></p>`}`;
}

function partView(page: RunPage, part: Part): Html {
  if (part.kind === 'text') return textView(page, 'Result', part);
  const rows = part.rows.slice(0, maxShownRows);
  const rest = part.rows.length + part.lost - rows.length;
  const cell = (text = '–'): Html => (text === '–' ? none : state(text));
  const columns = part.columns.map((name, at) => [name, (row: readonly string[]) => cell(row[at])] as const);
  return html`${table(html`<span class="hidden">Result</span>`, rows, '', columns)}
${rest > 0 ? hiddenNote(page.run, rest, 'further rows', part.lost) : ''}`;
}

function hiddenNote({ id }: Run, count: number, what: string, lost = 0): Html {
  const unkept = lost > 0 ? `, of which ${numberText(lost)} are not kept` : '';
  return html`<p class="hint">${numberText(count)} ${what} are not shown${unkept}: <a href="/runs/${id}/output">all that is kept, as text</a></p>`;
}

/** A text. The middle of a long one is left out: its end is often a summary. */
function textView({ run, offered }: RunPage, label: string, { text, lost }: Omit<Text, 'kind'>, kind?: string): Html {
  const left = text.length - maxShownLength;
  const half = maxShownLength / 2;
  const shown =
    left > 0 ? `${text.slice(0, half)}\n… (${numberText(left)} characters are left out) …\n${text.slice(-half)}` : text;
  const look = kind ?? (shown.includes('\n') ? '' : 'sentence');
  return html`${textBlock(linkCommands(shown.trimEnd(), offered), label, look)}${left > 0 ? hiddenNote(run, left + lost, 'characters', lost) : ''}`;
}

function cancelForm({ run: { id, form }, tokenOf }: RunPage): Html {
  const path = `/runs/${id}/cancel`;
  const text = form.operation.interrupt
    ? 'Ends it early: it begins nothing further, and finishes what it has begun.'
    : 'Ends it at once, as Ctrl-C does.';
  return html`<form method="post" action="${path}"><input type="hidden" name="token" value="${tokenOf(path)}">
<p class="actions"><button id="cancel">End it early</button> <span class="hint">${text}</span></p></form>`;
}

function performForm({ run, tokenOf, errors }: RunPage): Html {
  const { id, command } = run;
  const path = `/runs/${id}/perform`;
  const confirm = command.last.plan?.confirm;
  return html`<form method="post" action="${path}" class="operation confirm"><input type="hidden" name="token" value="${tokenOf(path)}">
${
  confirm
    ? fieldView(
        {
          ...{ id: 'typed', isRequired: true, errors },
          label: `${confirm.name} ${confirm.consequence}. Type its ${confirm.kind ?? 'slug'} to confirm`,
        },
        attributes =>
          html`<input type="text" autocomplete="off" spellcheck="false" autocapitalize="off" ${attributes}>`,
      )
    : ''
}
<p class="actions"><button id="perform" class="main${confirm ? ' hurts' : ''}">Do it</button></p></form>`;
}

/** The form of a run with its values, without its secret. */
function formPath({ form: { operation, texts, reason } }: Run): string {
  const query = new URLSearchParams();
  for (const [name, values] of Object.entries(texts))
    if (operation.fields[name]?.kind !== 'secret') for (const text of values) query.append(name, text);
  if (reason) query.append('because', reason);
  return `${operationPath(operation.name)}?${query}`;
}

/** All that is kept of what a run has returned, as text, with how much is not. */
export function runText({ command: { parts, last, notes } }: Run): string {
  return [...(last.plan ? [last.plan.text] : []), ...[...parts, notes].map(partText)].join('\n');
}

function partText(part: Part): string {
  const lines = part.kind === 'text' ? [part.text] : [part.columns, ...part.rows].map(row => row.join('\t'));
  const what = part.kind === 'text' ? 'earlier characters' : 'further rows';
  return [...lines, ...(part.lost > 0 ? [`(${numberText(part.lost)} ${what} are not kept)`] : [])].join('\n');
}
