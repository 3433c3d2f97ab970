import { randomUUID } from 'node:crypto';
import { type Html, html } from '../../lib/html/html.ts';
import { changingFields, needsConfirmation } from '../command/operation.ts';
import { type Field, isOutside } from '../command/operation-fields.ts';
import type { Candidate } from '../command/stored-values.ts';
import { fieldLabel, unwrapped } from '../command/texts.ts';
import { commandText, type FilledForm } from './command-line.ts';
import type { ConsolePage, PageRequest } from './console-page.ts';
import { type FormError, formId, inputId, isSeveral, localTime } from './form-values.ts';
import { inWords } from './form-words.ts';
import { textBlock } from './format.ts';
import { hiddenInputs, operationPath, tenantPath } from './links.ts';
import type { Offered } from './offered.ts';
import { candidatesOf, dependsOnTenant } from './pickable-values.ts';

/** The form of an operation, made of its definition. */
export async function formPage(
  request: PageRequest,
  { operation, isAllowed }: Offered,
  form: FilledForm,
  errors: readonly FormError[] = [],
  showsCommand = false,
): Promise<ConsolePage> {
  const { control, tokenOf } = request;
  const { name, help, fields, plan, effect } = operation;
  const shown: Html[] = [];
  const folded: { label: string; view: Html }[] = [];
  for (const [each, field] of Object.entries(fields)) {
    const label = fieldLabel(each, field);
    const input = {
      ...field,
      id: inputId(each),
      name: each,
      label,
      hint: hintOf(field, operation),
    };
    const view = fieldView(
      input,
      errors,
      form.texts[each],
      await candidatesOf(field, form, control),
    );
    if (isFolded(each, field, form, errors)) folded.push({ label, view });
    else shown.push(view);
  }

  const changes =
    plan !== undefined &&
    (effect !== 'reads' || changingFields(operation).some(field => form.texts[field]?.length));
  const button = (step: string, text: string, isMain: boolean): Html =>
    html`<button name="step" value="${step}"${isMain ? html` class="main"` : ''}>${text}</button>`;
  const hasPlan =
    plan !== undefined &&
    (isAllowed || !Object.values(fields).some(each => each.isRequired && isOutside(each)));
  const planButton = hasPlan ? button('plan', 'Show the plan', changes) : '';
  const runButton =
    isAllowed && !needsConfirmation(operation) ? button('run', 'Run it', !changes) : '';
  const fillButton = Object.values(fields).some(dependsOnTenant)
    ? button('fill', 'Show what the tenant has', false)
    : '';

  const main = html`<p>${inWords(help.description, fields)}</p>
<p class="note${needsConfirmation(operation) ? ' bad' : ''}">${effectText(operation)}${isAllowed ? '' : ` This console does not run it (--read-only or --allow): ${hasPlan ? 'see its plan, or ' : ''}copy the command.`}</p>
${errorSummary(errors)}
${showsCommand ? commandView(form) : ''}
<form method="post" action="${operationPath(name)}" id="${formId}" novalidate>
${hiddenInputs({ token: tokenOf(operationPath(name)), form: randomUUID() })}
${shown}
${folded.length > 0 ? html`<details class="more"><summary>More: ${folded.map(({ label }) => label).join(', ')}</summary>${folded.map(({ view }) => view)}</details>` : ''}
<p class="actions">${changes ? [planButton, runButton] : [runButton, planButton]}${button('command', 'Show as command', false)}${fillButton}</p>
</form>
${helpView(operation)}`;
  return {
    title: name,
    above: [['/operations', 'Commands'], ...tenantsAbove(form)],
    main,
    status: errors.length > 0 ? 422 : 200,
  };
}

/** The pages of the tenants of a form, which its page leads back to. */
export function tenantsAbove({ texts }: FilledForm): (readonly [path: string, name: string])[] {
  return (texts.slug ?? []).slice(0, 3).map(slug => [tenantPath(slug), slug]);
}

/**
 * True for a field that a form folds away: few people need it, or another field in its place
 * has a value.
 */
function isFolded(
  name: string,
  { isAdvanced, unless = [] }: Field,
  { texts }: FilledForm,
  errors: readonly FormError[],
): boolean {
  const isGiven = (each: string): boolean => (texts[each] ?? []).length > 0;
  if (isGiven(name) || errors.some(({ id }) => id === inputId(name))) return false;

  return isAdvanced === true || unless.some(isGiven);
}

/** Returns the hint of a form on a field, with the default. */
function hintOf(
  { kind, prompt, description, otherwise }: Field,
  { fields }: Offered['operation'],
): string {
  const text =
    kind === 'secret' ? `${prompt}. It is not shown again` : inWords(description, fields);
  const without =
    otherwise === undefined ? '' : `${text === '' ? '' : '. '}Without it: ${otherwise}`;

  return text + without;
}

/** The help of a command, in the words of a form. */
function helpView({ help, fields }: Offered['operation']): Html {
  if (help.more === undefined) return html``;

  const paragraph = (text: string): Html =>
    text.startsWith(' ')
      ? textBlock(text.trim(), 'A command')
      : html`<p>${inWords(text, fields)}</p>`;

  return html`<details><summary>How it works</summary>${help.more.split('\n\n').flatMap(unwrapped).map(paragraph)}</details>`;
}

function effectText(operation: Offered['operation']): string {
  const { effect, fields } = operation;
  const changing = changingFields(operation);
  if (changing.length > 0) {
    const labels = changing.map(name => `“${fieldLabel(name, fields[name])}”`);
    return `It changes something if you give ${labels.join(' or ')}.`;
  }

  const planFirst = 'The plan comes first, and wants a name typed.';
  return {
    reads: 'It only reads.',
    changes: 'It makes changes.',
    'locks out': `It locks out people or clients. ${planFirst}`,
    destroys: `It destroys what cannot be had back easily. ${planFirst}`,
  }[effect];
}

/** The command that a form stands for; docs.js adds a button that copies it. */
export function commandView(form: FilledForm): Html {
  return html`<h2>As a command</h2>${textBlock(commandText(form), 'the command')}`;
}

/** The errors of a form, which take the focus, and link to their fields. */
export function errorSummary(errors: readonly FormError[]): Html {
  if (errors.length === 0) return html``;
  const items = errors.map(
    ({ id, text, label }) =>
      html`<li><a href="#${id}">${label === undefined ? text : `${label}: ${text}`}</a></li>`,
  );
  const title = errors.some(({ id }) => id === formId) ? 'Nothing was run' : 'Correct the form';
  return html`<div class="note bad" role="alert" tabindex="-1" autofocus><strong>${title}</strong><ul>${items}</ul></div>`;
}

interface Input extends Partial<Field> {
  readonly id: string;
  /** The name of its parameter; undefined: the id. */
  readonly name?: string;
  readonly label: string;
  readonly hint?: string;
}

/**
 * An input with its label, its hint, and its error.
 * @param candidates the values that it can have
 */
export function fieldView(
  input: Input,
  errors: readonly FormError[],
  texts: readonly string[] = [],
  candidates: readonly Candidate[] = [],
): Html {
  const { id, name = id, label, hint, isRequired, kind, neededUnless } = input;
  const error = errors.find(each => each.id === id);
  const described = html` aria-describedby="${id}-hint"${error ? html` aria-invalid="true"` : ''}`;
  const isFlag = kind === 'flag';
  const optional = isRequired || isFlag || neededUnless ? '' : 'optional';
  const hintView = html`<p class="hint" id="${id}-hint">${hint} ${error && html`<strong class="state bad">${error.text}</strong>`}</p>`;
  const choices = (input.choices ?? []).map((value): Candidate => ({ value }));
  const picks = choices.length > 0 ? choices : candidates;

  if (isSeveral(input) && picks.length > 0) {
    return html`<fieldset class="field${error ? ' bad' : ''}" id="${id}" tabindex="-1" aria-describedby="${id}-hint">
<legend>${label} <span class="hint">${optional}</span></legend>${hintView}${picksView(input, picks, texts)}</fieldset>`;
  }

  const attributes = html`id="${id}" name="${name}"${described}${isRequired ? html` aria-required="true"` : ''}`;
  const shown = control(input, texts, attributes, picks, choices.length > 0);
  return html`<div class="field${error ? ' bad' : ''}">${isFlag ? shown : ''}
<label for="${id}">${label}</label> <span class="hint">${optional}</span>
${hintView}
${isFlag ? '' : shown}</div>`;
}

/** Maximum values that are shown with a box each; further ones are typed. */
const maxPicks = 100;
/**
 * Maximum values of a list that opens; of more values, the browser offers those that begin with
 * the typed text.
 */
const maxOptions = 40;

/** The values of a field that can have several, each with a box. */
function picksView(
  { id, name = id, isNames }: Input,
  picks: readonly Candidate[],
  texts: readonly string[],
): Html {
  const offered = picks.slice(0, maxPicks);
  const known = new Set(offered.map(({ value }) => value));
  const others = texts.filter(text => !known.has(text));
  const isAll = picks.length <= maxPicks && others.length === 0;
  const box = ({ value, label = value, description }: Candidate): Html =>
    html`<label><input type="checkbox" name="${name}" value="${value}"${texts.includes(value) ? html` checked` : ''}> ${label} ${description ? html`<span class="hint">${description}</span>` : ''}</label>`;
  const rest =
    isAll || isNames
      ? ''
      : html`<label class="others" for="${id}-others">Others, with spaces between them</label><textarea rows="2" spellcheck="false" id="${id}-others" name="${name}">${others.join('\n')}</textarea>`;

  return html`<div class="picks">${offered.map(box)}</div>${rest}`;
}

/** @param isChoice true if nothing else than the picks is accepted */
function control(
  { id, kind, unit, isList, isRequired, default: initial }: Input,
  texts: readonly string[],
  attributes: Html,
  picks: readonly Candidate[],
  isChoice: boolean,
): Html {
  const value = texts.join(' ') || String(initial ?? '');
  const behind = (input: Html, text: string): Html =>
    html`<span class="with-unit">${input} <span class="unit">${text}</span></span>`;
  const common = html`autocomplete="off" spellcheck="false" ${attributes}`;
  if (kind === 'flag') {
    return html`<input type="checkbox" value="on" ${attributes}${texts.length > 0 ? html` checked` : ''}>`;
  }
  if (kind === 'secret') return html`<input type="password" autocomplete="off" ${attributes}>`;
  if (kind === 'time' && (value === '' || localTime.test(value.replace(/Z$/, '')))) {
    return behind(
      html`<input type="datetime-local" step="1" value="${value.replace(/(\.\d+)?Z$/, '')}" ${attributes}>`,
      'UTC',
    );
  }
  if (isChoice || (picks.length > 0 && picks.length <= maxOptions)) {
    return selection(picks, value, isRequired, attributes);
  }
  if (isList) {
    return html`<textarea rows="3" spellcheck="false" ${attributes}>${texts.join('\n')}</textarea>`;
  }
  if (unit !== undefined) {
    return behind(html`<input type="text" inputmode="decimal" value="${value}" ${common}>`, unit);
  }

  const input = html`<input type="text" value="${value}" ${common}`;
  if (picks.length === 0) return html`${input}>`;
  const options = picks.map(
    each => html`<option value="${each.value}">${each.label ?? each.description}</option>`,
  );
  return html`${input} list="${id}-list"><datalist id="${id}-list">${options}</datalist>`;
}

/**
 * A list that opens. A value that it does not have, such as one of a link, is its first one.
 */
function selection(
  picks: readonly Candidate[],
  value: string,
  isRequired = false,
  attributes: Html,
): Html {
  const isKnown = value === '' || picks.some(each => each.value === value);
  const all = isKnown ? picks : [{ value }, ...picks];
  const empty = isRequired && value !== '' ? '' : html`<option value="">–</option>`;
  const options = all.map(
    ({ value: each, label = each, description }) =>
      html`<option value="${each}"${each === value ? html` selected` : ''}>${label}${description ? ` – ${description}` : ''}</option>`,
  );
  return html`<select ${attributes}>${empty}${options}</select>`;
}
