import { type Html, html } from '../../docs/html.ts';
import { breadcrumbs } from './console-page.ts';
import type { FormError } from './form-values.ts';
import { commandView, errorSummary } from './form-view.ts';
import type { Part } from './running-command.ts';
import type { Run } from './runs.ts';
import { durationText, facts, none, state, table, time } from './view.ts';

/** Parts of the end of a long result that a page shows; the whole is a file. */
const maxShownParts = 150;
const maxShownRows = 200;
const maxShownLength = 20_000;

/** What a page of a run needs beside the run. */
export interface RunPage {
  readonly run: Run;
  /** Tokens of the forms that go on, and that end it. */
  readonly tokens: { readonly perform: string; readonly cancel: string };
  readonly errors: readonly FormError[];
  readonly formPath: string;
}

/** The page of a plan or of a run. Its middle part is sent again when something has changed. */
export function runView(page: RunPage): Html {
  const { run, errors } = page;
  const { name } = run.form.operation;
  const slug = run.form.texts.slug?.length === 1 ? run.form.texts.slug[0] : undefined;
  return html`${breadcrumbs(['/operations', 'Commands'], [page.formPath, name], ...(slug ? [[`/tenants/${encodeURIComponent(slug)}`, slug] as const] : []))}
<h1>${run.isPlan ? 'Plan: ' : ''}${name} ${slug}</h1>
${errorSummary(errors)}
<p class="status" role="status" id="run-status">${statusText(run)}</p>
<div id="run" data-events="/runs/${run.id}/events"${run.command.outcome ? html` data-ended` : ''}>${runFragment(page)}</div>
${commandView(run.form)}`;
}

/** One sentence about the whole of a run. */
export function statusText({ command, isPlan }: Run): string {
  const { count, step, outcome, isInterrupted } = command;
  const counted = count
    ? `${count.done} of ${count.total} done${count.failed > 0 ? `, ${count.failed} failed` : ''}`
    : '';
  if (outcome === 'done')
    return [isPlan ? 'The plan is ready. Nothing was changed.' : 'It is done.', counted].join(' ').trim();
  if (outcome === 'failed' && isInterrupted) return ['It was ended early.', counted].join(' ').trim();
  if (outcome === 'failed') return [isPlan ? 'It would fail.' : 'It has failed.', counted].join(' ').trim();
  if (isInterrupted) return ['It ends early.', counted].join(' ').trim();
  return counted || `It runs${step ? `: ${step}` : ''}.`;
}

/** The part of the page that changes. */
export function runFragment(page: RunPage): Html {
  const { run, tokens } = page;
  const { command, startedAt, by, form } = run;
  const { count, step, outcome, endedAt, notes, plan, parts, omitted } = command;
  const shown = parts.slice(-maxShownParts);
  const hidden = omitted + parts.length - shown.length;
  return html`${facts([
    ['State', state(outcome ?? 'running')],
    ['Started', time(startedAt)],
    ['Took', endedAt ? html`${durationText(endedAt.getTime() - startedAt.getTime())}` : html`${step ?? ''}`],
    ...(by ? ([['By', html`${by}`]] as const) : []),
    ['Reason', form.reason ? html`${form.reason}` : none],
  ])}
${count ? html`<progress max="${Math.max(1, count.total)}" value="${count.done}" aria-label="Done">${count.done} of ${count.total}</progress>` : ''}
${notes ? html`<pre class="text notes" tabindex="0" role="group" aria-label="${outcome === 'failed' ? 'Error' : 'Warnings'}">${notes.trimEnd()}</pre>` : ''}
${plan ? html`<pre class="text" tabindex="0" role="group" aria-label="Plan">${cut(plan.text)}</pre>` : ''}
${hidden > 0 ? html`<p class="hint">${hidden} earlier results are not shown: <a href="/runs/${run.id}/output">all of them as text</a></p>` : ''}
${joinTexts(shown).map(partView)}
${outcome === undefined && !command.isInterrupted ? cancelForm(run, tokens.cancel) : ''}
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

function partView(part: Part): Html {
  if (part.kind === 'text')
    return html`<pre class="text" tabindex="0" role="group" aria-label="Result">${cut(part.text)}</pre>`;
  const rows = part.rows.slice(0, maxShownRows);
  const rest = part.rows.length - rows.length;
  const cells = rows.map(row => row.map(text => (text === '–' ? none : state(text))));
  return html`${table({ caption: 'Result', columns: part.columns, rows: cells, empty: html``, isCaptionHidden: true })}
${rest > 0 ? html`<p class="hint">${rest} further rows are not shown.</p>` : ''}`;
}

const cut = (text: string): string =>
  text.length > maxShownLength
    ? `${text.slice(0, maxShownLength)}\n… (${text.length - maxShownLength} more characters)`
    : text;

function cancelForm({ id, form }: Run, token: string): Html {
  const text = form.operation.interrupt
    ? 'Ends it early: it begins nothing further, and finishes what it has begun.'
    : 'Ends it at once, as Ctrl-C does.';
  return html`<form method="post" action="/runs/${id}/cancel"><input type="hidden" name="token" value="${token}">
<p class="buttons"><button id="cancel">End it early</button> <span class="hint">${text}</span></p></form>`;
}

function performForm({ run, tokens, formPath, errors }: RunPage): Html {
  const { id, form, command } = run;
  const confirm = command.plan?.confirm;
  const query = new URLSearchParams();
  for (const [name, texts] of Object.entries(form.texts))
    if (form.operation.fields[name]?.kind !== 'secret') for (const text of texts) query.append(name, text);
  const error = errors.find(each => each.id === 'typed');
  return html`<form method="post" action="/runs/${id}/perform" class="operation confirm"><input type="hidden" name="token" value="${tokens.perform}">
${
  confirm
    ? html`<div class="field${error ? ' wrong' : ''}"><label for="typed">${confirm.name} ${confirm.consequence}. Type its ${confirm.kind ?? 'slug'} to confirm</label>
${error ? html`<p class="error" id="typed-error">${error.text}</p>` : ''}
<input type="text" id="typed" name="typed" autocomplete="off" spellcheck="false" autocapitalize="off"${error ? html` aria-invalid="true" aria-describedby="typed-error"` : ''}></div>`
    : ''
}
<p class="buttons"><button id="perform" class="main${confirm ? ' hurts' : ''}">Do it</button>
<a href="${formPath}?${query.toString()}">Change the values</a></p></form>`;
}

/** All that a run has returned, as text. */
export function runText({ command: { parts, plan, notes } }: Run): string {
  const texts = parts.map(part =>
    part.kind === 'text' ? part.text : [part.columns, ...part.rows].map(row => row.join('\t')).join('\n'),
  );
  return [...(plan ? [plan.text] : []), ...texts, notes].join('\n');
}
