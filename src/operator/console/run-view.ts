import { type Html, html } from '../../docs/html.ts';
import { breadcrumbs } from './console-page.ts';
import type { FormError } from './form-values.ts';
import { commandView, errorSummary, fieldView } from './form-view.ts';
import type { Part, RunningCommand } from './running-command.ts';
import type { Run } from './runs.ts';
import { durationText, facts, none, operationPath, state, table, time } from './view.ts';

/** Parts of the end of a long result that a page shows; the whole is a file. */
const maxShownParts = 150;
const maxShownRows = 200;
const maxShownLength = 20_000;

/** What a page of a run needs beside the run. */
export interface RunPage {
  readonly run: Run;
  /** Returns the token of a form by its path. */
  readonly tokenOf: (path: string) => string;
  readonly errors: readonly FormError[];
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

function runFacts({ command: { outcome, endedAt, step }, startedAt, by, form }: Run): Html {
  return facts([
    ['State', state(outcome ?? 'running')],
    ['Started', time(startedAt)],
    ['Took', endedAt ? durationText(endedAt.getTime() - startedAt.getTime()) : step],
    ...(by ? ([['By', by]] as const) : []),
    ['Reason', form.reason],
  ]);
}

/** One sentence about the whole of a run. */
export function statusText({ command, isPlan }: Run): string {
  const { count, step, outcome, isInterrupted } = command;
  const counted = count
    ? `${count.done} of ${count.total} done${count.failed > 0 ? `, ${count.failed} failed` : ''}`
    : '';
  if (outcome === 'done')
    return [isPlan ? 'The plan is ready. Nothing was changed.' : 'It is done.', counted].join(' ').trim();
  if (outcome === 'found') return ['It is done, and found something.', counted].join(' ').trim();
  if (outcome === 'failed' && isInterrupted) return ['It was ended early.', counted].join(' ').trim();
  if (outcome === 'failed') return [isPlan ? 'It would fail.' : 'It has failed.', counted].join(' ').trim();
  if (isInterrupted) return ['It ends early.', counted].join(' ').trim();
  return counted || `It runs${step ? `: ${step}` : ''}.`;
}

/** The part of the page that changes. */
export function runFragment(page: RunPage): Html {
  const { run } = page;
  const { command } = run;
  const { count, outcome, plan, parts, omitted } = command;
  const notes = notesText(command);
  const shown = parts.slice(-maxShownParts);
  const hidden = omitted + parts.length - shown.length;
  return html`${runFacts(run)}
${count ? html`<progress max="${Math.max(1, count.total)}" value="${count.done}" aria-label="Done">${count.done} of ${count.total}</progress>` : ''}
${outcome === undefined && !command.isInterrupted ? cancelForm(page) : ''}
${notes ? html`<pre class="text notes" tabindex="0" role="group" aria-label="${outcome === 'failed' ? 'Error' : 'Warnings'}">${notes.trimEnd()}</pre>` : ''}
${plan ? textView(run, 'Plan', plan.text) : ''}
${hidden > 0 ? html`<p class="hint">${number(hidden)} earlier results are not shown${omitted > 0 ? `, of which ${number(omitted)} are not kept` : ''}: ${outputLink(run)}</p>` : ''}
${joinTexts(shown).map(part => partView(run, part))}
${outcome === 'done' && run.isPlan && !plan?.hasFailed ? performForm(page) : ''}`;
}

/** Texts that follow each other are one block. */
function joinTexts(parts: readonly Part[]): Part[] {
  const joined: Part[] = [];
  for (const part of parts) {
    const last = joined.at(-1);
    if (part.kind === 'text' && last?.kind === 'text')
      joined[joined.length - 1] = { kind: 'text', text: `${last.text}\n${part.text}` };
    else joined.push(part);
  }
  return joined;
}

function partView(run: Run, part: Part): Html {
  if (part.kind === 'text') return textView(run, 'Result', part.text);
  const rows = part.rows.slice(0, maxShownRows);
  const rest = part.total - rows.length;
  const lost = part.total - part.rows.length;
  const cells = rows.map(row => row.map(text => (text === '–' ? none : state(text))));
  return html`${table({ caption: 'Result', columns: part.columns, rows: cells, empty: '', isCaptionHidden: true })}
${rest > 0 ? html`<p class="hint">${number(rest)} further rows are not shown${lost > 0 ? `, of which ${number(lost)} are not kept` : ''}: ${outputLink(run)}</p>` : ''}`;
}

/** A text. The middle of a long one is left out: its end is often a summary. */
function textView(run: Run, label: string, text: string): Html {
  const left = text.length - maxShownLength;
  const half = maxShownLength / 2;
  const shown =
    left > 0 ? `${text.slice(0, half)}\n… (${number(left)} characters are left out) …\n${text.slice(-half)}` : text;
  return html`<pre class="text" tabindex="0" role="group" aria-label="${label}">${shown}</pre>
${left > 0 ? html`<p class="hint">The middle is not shown: ${outputLink(run)}</p>` : ''}`;
}

function outputLink({ id }: Run): Html {
  return html`<a href="/runs/${id}/output">all that is kept, as text</a>`;
}

const number = (count: number): string => count.toLocaleString('en');

function notesText({ notes, omittedNotes }: RunningCommand): string {
  return omittedNotes > 0 ? `(${number(omittedNotes)} earlier characters are not kept)\n${notes}` : notes;
}

function cancelForm({ run: { id, form }, tokenOf }: RunPage): Html {
  const path = `/runs/${id}/cancel`;
  const text = form.operation.interrupt
    ? 'Ends it early: it begins nothing further, and finishes what it has begun.'
    : 'Ends it at once, as Ctrl-C does.';
  return html`<form method="post" action="${path}"><input type="hidden" name="token" value="${tokenOf(path)}">
<p class="buttons"><button id="cancel">End it early</button> <span class="hint">${text}</span></p></form>`;
}

function performForm({ run, tokenOf, errors }: RunPage): Html {
  const { id, form, command } = run;
  const path = `/runs/${id}/perform`;
  const confirm = command.plan?.confirm;
  const query = new URLSearchParams();
  for (const [name, texts] of Object.entries(form.texts))
    if (form.operation.fields[name]?.kind !== 'secret') for (const text of texts) query.append(name, text);
  if (form.reason) query.append('because', form.reason);
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
<p class="buttons"><button id="perform" class="main${confirm ? ' hurts' : ''}">Do it</button>
<a href="${operationPath(form.operation.name)}?${query.toString()}">Change the values</a></p></form>`;
}

/** All that is kept of what a run has returned, as text, with how much is not. */
export function runText({ command }: Run): string {
  const { parts, plan, omitted } = command;
  const lost = omitted > 0 ? [`(${number(omitted)} earlier results are not kept)`] : [];
  return [...(plan ? [plan.text] : []), ...lost, ...parts.map(partText), notesText(command)].join('\n');
}

function partText(part: Part): string {
  if (part.kind === 'text') return part.text;
  const lost = part.total - part.rows.length;
  const lines = [part.columns, ...part.rows].map(row => row.join('\t'));
  return [...lines, ...(lost > 0 ? [`(${number(lost)} further rows are not kept)`] : [])].join('\n');
}
