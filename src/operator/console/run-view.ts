import { type Html, html } from '../../lib/html/html.ts';
import { type FilledForm, linkCommands } from './command-line.ts';
import { type ConsolePage, type PageRequest, reloadAfter } from './console-page.ts';
import type { FormError } from './form-values.ts';
import { commandView, errorSummary, fieldView, tenantsAbove } from './form-view.ts';
import { inWords } from './form-words.ts';
import { durationText, none, numberText, state, textBlock, time } from './format.ts';
import { hiddenInputs, operationPath, withQuery } from './links.ts';
import type { Offer } from './offered.ts';
import { needsRecoveryHost, recoveryHostText } from './recovery-host.ts';
import type { Part, Run } from './runs.ts';
import { facts, table } from './view.ts';

/** The part of a long result that a page shows; the whole is a file. */
const maxShownRows = 200;
const maxShownLength = 20_000;

export const runPath = ({ id }: Run): string => `/runs/${id}`;

/** Returns the name of a run: its command, and its tenant. */
export function runName({ form: { operation, texts }, start }: Run): string {
  return [start.isPlan ? 'Plan:' : '', operation.name, ...(texts.slug ?? []).slice(0, 3)]
    .join(' ')
    .trim();
}

export function runState({ outcome, start, isInterrupted }: Run): Html {
  if (outcome === 'failed' && isInterrupted) return state('ended early');

  return state(outcome === 'done' && start.isPlan ? 'ready' : (outcome ?? 'running'));
}

/**
 * The page of a plan or of a run. Its middle part changes; everybody but the visitor who has
 * started it sees only how far it is.
 */
export function runView(
  request: PageRequest,
  run: Run,
  errors: readonly FormError[] = [],
): ConsolePage {
  const { form, start } = run;
  const { name } = form.operation;
  const isEnded = run.outcome !== undefined;
  const result =
    start.by === request.visitor.name ? resultView(request, run, errors) : othersNote(run);

  return {
    title: runName(run),
    above: [['/operations', 'Commands'], [operationPath(name), name], ...tenantsAbove(form)],
    main: html`${errorSummary(errors)}
<p role="status" id="run-status" tabindex="-1">${statusText(run)}</p>
<div id="run"${isEnded ? html` data-ended` : ''}>${runFacts(run)}${result}</div>
${commandView(form)}`,
    status: errors.length > 0 ? 422 : 200,
    // For browsers without script. The address differs each time: at the same address, they
    // would only go to the fragment.
    head: isEnded
      ? undefined
      : html`<noscript>${reloadAfter(10, `${runPath(run)}?at=${Date.now()}#run`)}</noscript>`,
  };
}

const othersNote = ({ start }: Run) =>
  html`<p class="note">${start.by} alone sees its result. <a href="/log">The log</a> has what it changed.</p>`;

function runFacts(run: Run): Html {
  const { startedAt, endedAt, last, start, form } = run;
  const took = durationText((endedAt ?? new Date()).getTime() - startedAt.getTime());
  return facts(
    ['State', runState(run)],
    ['Started', time(startedAt)],
    endedAt ? ['Took', took] : ['Runs for', last.step ? `${took}: ${last.step.text}` : took],
    ...(start.by ? [['By', start.by] as const] : []),
    ['Reason', form.texts.reason?.[0]],
  );
}

/** One sentence about the whole of a run. */
export function statusText({
  outcome,
  isInterrupted,
  start: { isPlan },
  last: { count, step },
}: Run): string {
  const bad = count?.bad ? `, ${numberText(count.bad)} ${count.badly}` : '';
  const counted = count ? `${numberText(count.done)} of ${numberText(count.total)} done${bad}` : '';
  const sentences = {
    done: isPlan ? 'The plan is ready. Nothing was changed.' : 'It is done.',
    found: 'It is done, and found something.',
    failed: isInterrupted ? 'It was ended early.' : isPlan ? 'It would fail.' : 'It has failed.',
  };
  if (outcome) return `${sentences[outcome]} ${counted}`.trim();
  return isInterrupted
    ? `It ends early. ${counted}`.trim()
    : counted || `It runs${step ? `: ${step.text}` : ''}.`;
}

function resultView(request: PageRequest, run: Run, errors: readonly FormError[]): Html {
  const { outcome, parts, notes, isInterrupted, form } = run;
  const { isPlan } = run.start;
  const { count, plan } = run.last;
  const { offered } = request;

  return html`
${count ? html`<progress class="${outcome === 'failed' && !isInterrupted ? 'bad' : ''}" max="${Math.max(1, count.total)}" value="${count.done}" aria-label="Done">${count.done} of ${count.total}</progress>` : ''}
${outcome === undefined && !isInterrupted ? cancelForm(request, run) : ''}
${notes ? notesView(run, offered) : ''}
${plan ? textView(run, 'Plan', plan.text) : ''}
${parts.map(part => (part.kind === 'text' ? resultText(run, part.text, offered) : listView(run, part)))}
${outcome === 'done' && isPlan && !plan?.hasFailed ? performForm(request, run, errors) : ''}
${outcome === undefined ? '' : html`<p><a href="${formPath(form)}">${isPlan ? 'Change the values' : 'Fill in the form again'}</a></p>`}`;
}

function listView(run: Run, { columns, rows }: Extract<Part, { kind: 'list' }>): Html {
  const cell = (text = '–'): Html => (text === '–' ? none : state(text));
  const shown = columns.map(
    (name, at) => [name, (row: readonly string[]) => cell(row[at])] as const,
  );
  return html`${table(html`<span class="hidden">Result</span>`, rows.slice(0, maxShownRows), '', shown)}
${hiddenNote(run, rows.length - maxShownRows, 'further rows')}`;
}

/** The warnings and errors of a run. The commands in our own sentences become links. */
function notesView(run: Run, offered: Offer): Html {
  const hasFailed = run.outcome === 'failed' && !run.isInterrupted;
  const link = (text: string): Html => linkCommands(text, offered);

  return textView(
    run,
    hasFailed ? 'Error' : 'Warnings',
    run.notes,
    hasFailed ? 'note bad' : 'note',
    link,
  );
}

/**
 * Links the page of the migration run in the result of a run. Every other command stays a text.
 */
function resultText(run: Run, text: string, offered: Offer): Html {
  const shown = offered.get('runs show');
  const pages: Offer = new Map(shown ? [['runs show', shown]] : []);

  return textView(run, 'Result', text, undefined, result => linkCommands(result, pages));
}

/**
 * A text. The middle of a long one is left out: its end is often a summary. A plan or a result
 * may have a text of a tenant that looks like a command: it stays a text.
 */
function textView(
  run: Run,
  label: string,
  text: string,
  look?: string,
  show: (text: string) => Html = shown => html`${shown}`,
): Html {
  const left = text.length - maxShownLength;
  const half = maxShownLength / 2;
  const shown = left > 0 ? `${text.slice(0, half)}\n…\n${text.slice(-half)}` : text;
  const words = inWords(shown.trimEnd(), run.form.operation.fields);
  return html`${textBlock(show(words), label, look)}${hiddenNote(run, left, 'characters')}`;
}

function hiddenNote(run: Run, count: number, what: string): Html {
  if (count <= 0) return html``;
  return html`<p class="hint">${numberText(count)} ${what} are not shown: <a href="${runPath(run)}/output">the whole, as text</a></p>`;
}

function cancelForm({ tokenOf }: PageRequest, run: Run): Html {
  const path = `${runPath(run)}/cancel`;
  const text = run.form.operation.handling.interrupt
    ? 'Ends it early: it begins nothing further, and finishes what it has begun.'
    : 'Ends it at once, as Ctrl-C does.';
  return html`<form method="post" action="${path}">${hiddenInputs({ token: tokenOf(path) })}
<p class="actions"><button id="cancel">End it early</button> <span class="hint">${text}</span></p></form>`;
}

function performForm(
  { tokenOf, offered, control }: PageRequest,
  run: Run,
  errors: readonly FormError[],
): Html {
  if (needsRecoveryHost(run.form, control)) return html`<p class="note">${recoveryHostText}.</p>`;
  const { name } = run.form.operation;
  if (!offered.get(name)?.isAllowed) {
    return html`<p class="note">This console does not run ${name}: copy the command below for somebody who does.</p>`;
  }

  const path = `${runPath(run)}/perform`;
  const confirm = run.last.plan?.confirm;
  const label = `${confirm?.name} ${confirm?.consequence}. Type its ${confirm?.kind ?? 'slug'} to confirm`;
  return html`<form method="post" action="${path}" class="note">${hiddenInputs({ token: tokenOf(path) })}
${confirm ? fieldView({ id: 'typed', isRequired: true, label }, errors) : ''}
<p class="actions"><button id="perform" class="main${confirm ? ' hurts' : ''}">Run it</button></p></form>`;
}

/** The form of a run with its values, without its secret. */
function formPath({ operation, texts }: FilledForm): string {
  const given = Object.entries(texts).filter(([name]) => operation.fields[name]?.kind !== 'secret');
  return withQuery(operationPath(operation.name), Object.fromEntries(given));
}

/** All that a run has returned, as text. */
export function runText({ parts, last, notes }: Run): string {
  const lines = parts.flatMap(part =>
    part.kind === 'text' ? [part.text] : [part.columns, ...part.rows].map(row => row.join('\t')),
  );
  return [...(last.plan ? [last.plan.text] : []), ...lines, notes].join('\n');
}
