import { type Html, html } from '../../docs/html.ts';
import type { FilledForm } from './command-line.ts';
import { linkCommands } from './command-links.ts';
import { type ConsolePage, refresh } from './console-page.ts';
import type { Part, Run } from './console-run.ts';
import type { PageRequest } from './console-services.ts';
import type { FormError } from './form-values.ts';
import { commandView, errorSummary, fieldView } from './form-view.ts';
import { durationText, none, numberText, state, textBlock, time } from './format.ts';
import { hiddenInputs, operationPath, tenantPath, withQuery } from './links.ts';
import type { Offer } from './offered.ts';
import { facts, table } from './view.ts';

/** What a page shows of a long result; the whole is a file. */
const maxShownRows = 200;
const maxShownLength = 20_000;

export const runPath = ({ id }: Run): string => `/runs/${id}`;

/**
 * The page of a plan or of a run. Its middle part changes; everybody but the visitor who has started it sees only how
 * far it is.
 */
export function runView(request: PageRequest, run: Run, errors: readonly FormError[] = []): ConsolePage {
  const { form, isPlan, by } = run;
  const { name } = form.operation;
  const slug = form.texts.slug?.length === 1 ? form.texts.slug[0] : undefined;
  const isEnded = run.outcome !== undefined;
  const main = html`${errorSummary(errors)}
<p role="status" id="run-status" tabindex="-1">${statusText(run)}</p>
<div id="run"${isEnded ? html` data-ended` : ''}>${runFacts(run)}${by === request.visitor.name ? resultView(request, run, errors) : othersNote(run)}</div>
${commandView(form)}`;
  return {
    title: `${isPlan ? 'Plan: ' : ''}${name} ${slug ?? ''}`.trim(),
    above: [
      ['/operations', 'Commands'],
      [operationPath(name), name],
      ...(slug ? [[tenantPath(slug), slug] as const] : []),
    ],
    main,
    status: errors.length > 0 ? 422 : 200,
    // For browsers without script. Another address each time: at this one, they would only go to the fragment.
    head: isEnded ? undefined : html`<noscript>${refresh(10, `${runPath(run)}?at=${Date.now()}#run`)}</noscript>`,
  };
}

const othersNote = ({ by }: Run) =>
  html`<p class="note">${by} alone sees its result. <a href="/log">The log</a> has what it changed.</p>`;

function runFacts({ outcome, startedAt, endedAt, last, by, form }: Run): Html {
  return facts(
    ['State', state(outcome ?? 'running')],
    ['Started', time(startedAt)],
    ['Took', endedAt ? durationText(endedAt.getTime() - startedAt.getTime()) : last.step?.text],
    ...(by ? [['By', by] as const] : []),
    ['Reason', form.reason],
  );
}

/** One sentence about the whole of a run. */
export function statusText({ outcome, isInterrupted, isPlan, last: { count, step } }: Run): string {
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

function resultView(request: PageRequest, run: Run, errors: readonly FormError[]): Html {
  const { outcome, parts, notes, isInterrupted } = run;
  const { count, plan } = run.last;
  const { offered } = request.services;
  return html`
${count ? html`<progress max="${Math.max(1, count.total)}" value="${count.done}" aria-label="Done">${count.done} of ${count.total}</progress>` : ''}
${outcome === undefined && !isInterrupted ? cancelForm(request, run) : ''}
${notes ? textView(run, offered, outcome === 'failed' ? 'Error' : 'Warnings', notes, 'note') : ''}
${plan ? textView(run, offered, 'Plan', plan.text) : ''}
${parts.map(part => partView(run, offered, part))}
${outcome === 'done' && run.isPlan && !plan?.hasFailed ? performForm(request, run, errors) : ''}
${outcome === undefined ? '' : html`<p><a href="${formPath(run.form)}">${run.isPlan ? 'Change the values' : 'Fill in the form again'}</a></p>`}`;
}

function partView(run: Run, offered: Offer, part: Part): Html {
  if (part.kind === 'text') return textView(run, offered, 'Result', part.text);
  const rows = part.rows.slice(0, maxShownRows);
  const rest = part.rows.length - rows.length;
  const cell = (text = '–'): Html => (text === '–' ? none : state(text));
  const columns = part.columns.map((name, at) => [name, (row: readonly string[]) => cell(row[at])] as const);
  return html`${table(html`<span class="hidden">Result</span>`, rows, '', columns)}
${rest > 0 ? hiddenNote(run, rest, 'further rows') : ''}`;
}

function hiddenNote(run: Run, count: number, what: string): Html {
  return html`<p class="hint">${numberText(count)} ${what} are not shown: <a href="${runPath(run)}/output">the whole, as text</a></p>`;
}

/** A text. The middle of a long one is left out: its end is often a summary. */
function textView(run: Run, offered: Offer, label: string, text: string, look?: string): Html {
  const left = text.length - maxShownLength;
  const half = maxShownLength / 2;
  const shown = left > 0 ? `${text.slice(0, half)}\n…\n${text.slice(-half)}` : text;
  return html`${textBlock(linkCommands(shown.trimEnd(), offered), label, look)}${left > 0 ? hiddenNote(run, left, 'characters') : ''}`;
}

function cancelForm({ tokenOf }: PageRequest, run: Run): Html {
  const path = `${runPath(run)}/cancel`;
  const text = run.form.operation.interrupt
    ? 'Ends it early: it begins nothing further, and finishes what it has begun.'
    : 'Ends it at once, as Ctrl-C does.';
  return html`<form method="post" action="${path}">${hiddenInputs({ token: tokenOf(path) })}
<p class="actions"><button id="cancel">End it early</button> <span class="hint">${text}</span></p></form>`;
}

function performForm({ tokenOf }: PageRequest, run: Run, errors: readonly FormError[]): Html {
  const path = `${runPath(run)}/perform`;
  const confirm = run.last.plan?.confirm;
  const label = `${confirm?.name} ${confirm?.consequence}. Type its ${confirm?.kind ?? 'slug'} to confirm`;
  return html`<form method="post" action="${path}" class="confirm">${hiddenInputs({ token: tokenOf(path) })}
${confirm ? fieldView({ id: 'typed', isRequired: true, label }, errors) : ''}
<p class="actions"><button id="perform" class="main${confirm ? ' hurts' : ''}">Do it</button></p></form>`;
}

/** The form of a run with its values, without its secret. */
function formPath({ operation, texts, reason }: FilledForm): string {
  const given = Object.entries(texts).filter(([name]) => operation.fields[name]?.kind !== 'secret');
  return withQuery(operationPath(operation.name), { ...Object.fromEntries(given), because: reason });
}

/** All that a run has returned, as text. */
export function runText({ parts, last, notes }: Run): string {
  const lines = parts.flatMap(part =>
    part.kind === 'text' ? [part.text] : [part.columns, ...part.rows].map(row => row.join('\t')),
  );
  return [...(last.plan ? [last.plan.text] : []), ...lines, notes].join('\n');
}
