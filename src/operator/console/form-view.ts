import { randomUUID } from 'node:crypto';
import { type Html, html } from '../../docs/html.ts';
import { isConfirmed } from '../command/operation.ts';
import { type Field, storedKindOf } from '../command/operation-fields.ts';
import { type Candidate, readStoredValues } from '../command/stored-values.ts';
import { fieldLabel } from '../command/texts.ts';
import { commandText, type FilledForm } from './command-line.ts';
import type { ConsolePage, PageRequest } from './console-page.ts';
import { type FormError, formId, inputId } from './form-values.ts';
import { textBlock } from './format.ts';
import { hiddenInputs, operationPath } from './links.ts';
import type { Offered } from './offered.ts';

/** The form of an operation, made of its definition. */
export async function formPage(
  { control, tokenOf }: PageRequest,
  { operation, isAllowed }: Offered,
  form: FilledForm,
  errors: readonly FormError[] = [],
  showsCommand = false,
): Promise<ConsolePage> {
  const { name, description, help, fields, plan, effect, changingFields = [] } = operation;
  const inputs: Html[] = [];
  for (const [each, field] of Object.entries(fields)) {
    const hint = field.kind === 'secret' ? `${field.prompt}. It is not shown again.` : field.description;
    const input = { ...field, id: inputId(each), name: each, label: fieldLabel(each), hint };
    inputs.push(fieldView(input, errors, form.texts[each], await candidatesOf(field, form, control)));
  }
  const changes = plan !== undefined && (effect !== 'reads' || changingFields.some(field => form.texts[field]?.length));
  const button = (step: string, text: string, isMain: boolean): Html =>
    html`<button name="step" value="${step}"${isMain ? html` class="main"` : ''}>${text}</button>`;
  const planButton = isAllowed && plan ? button('plan', 'Show the plan', changes) : '';
  const runButton = isAllowed && !isConfirmed(operation) ? button('run', 'Run it', !changes) : '';
  const main = html`<p>${description}</p>
<p class="note${isConfirmed(operation) ? ' bad' : ''}">${effectText(operation)}${isAllowed ? '' : ' This console does not run it (--read-only or --allow): copy the command.'}</p>
${errorSummary(errors)}
${showsCommand ? commandView(form) : ''}
<form method="post" action="${operationPath(name)}" id="${formId}" novalidate>
${hiddenInputs({ token: tokenOf(operationPath(name)), form: randomUUID() })}
${inputs}
<p class="actions">${changes ? [planButton, runButton] : [runButton, planButton]}${button('command', 'Show as command', false)}</p>
</form>
${help ? html`<details><summary>How it works</summary>${textBlock(help, 'Help')}</details>` : ''}`;
  return { title: name, above: [['/operations', 'Commands']], main, status: errors.length > 0 ? 422 : 200 };
}

/** Returns what the value of a field can be, as far as it is known. */
async function candidatesOf(
  field: Field,
  { texts }: FilledForm,
  { statements }: PageRequest['control'],
): Promise<readonly Candidate[]> {
  const kind = storedKindOf(field);
  return kind ? readStoredValues(statements, kind, '', texts.slug?.[0]) : [];
}

function effectText({ effect, changingFields }: Offered['operation']): string {
  if (changingFields) return `It changes something if you give: ${changingFields.map(fieldLabel).join(', ')}.`;
  const planFirst = 'The plan comes first, and wants a name typed.';
  return {
    reads: 'It only reads.',
    changes: 'It makes changes.',
    'locks out': `It locks out people or programs. ${planFirst}`,
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
  const items = errors.map(({ id, text }) => html`<li><a href="#${id}">${text}</a></li>`);
  const title = errors.some(({ id }) => id === formId) ? 'Nothing was run' : 'Correct the form';
  return html`<div class="note bad" role="alert" tabindex="-1" autofocus><strong>${title}</strong><ul>${items}</ul></div>`;
}

interface Input extends Partial<Field> {
  readonly id: string;
  /** Without it, the id. */
  readonly name?: string;
  readonly label: string;
  readonly hint?: string;
}

/** An input with its label, its hint, and what is wrong with it. @param candidates what it can be */
export function fieldView(
  input: Input,
  errors: readonly FormError[],
  texts: readonly string[] = [],
  candidates: readonly Candidate[] = [],
): Html {
  const { id, name = id, label, hint, isRequired, kind, neededUnless } = input;
  const error = errors.find(each => each.id === id);
  const attributes = html`id="${id}" name="${name}" aria-describedby="${id}-hint"${error ? html` aria-invalid="true"` : ''}${
    isRequired ? html` aria-required="true"` : ''
  }`;
  const shown = control(input, texts, attributes, candidates);
  const isFlag = kind === 'flag';
  const optional = isRequired || isFlag ? '' : neededUnless ? `or ${fieldLabel(neededUnless)}` : 'optional';
  return html`<div class="field${error ? ' bad' : ''}">${isFlag ? shown : ''}
<label for="${id}">${label}</label> <span class="hint">${optional}</span>
<p class="hint" id="${id}-hint">${hint} ${error && html`<strong class="state bad">${error.text}</strong>`}</p>
${isFlag ? '' : shown}</div>`;
}

/** How many values a hint names at most. */
const maxNamed = 40;

function control(
  { id, kind, choices, isList, isRequired, default: initial }: Input,
  texts: readonly string[],
  attributes: Html,
  candidates: readonly Candidate[],
): Html {
  const value = texts.join(' ') || String(initial ?? '');
  if (kind === 'flag')
    return html`<input type="checkbox" value="on" ${attributes}${texts.length > 0 ? html` checked` : ''}>`;
  if (kind === 'secret') return html`<input type="password" autocomplete="off" ${attributes}>`;
  if (choices) {
    const options = choices.map(each => html`<option${each === value ? html` selected` : ''}>${each}</option>`);
    return html`<select ${attributes}>${isRequired ? '' : html`<option value="">–</option>`}${options}</select>`;
  }
  if (isList) {
    const named = candidates.slice(0, maxNamed).map(each => html`<code>${each.value}</code> `);
    return html`<textarea rows="3" spellcheck="false" ${attributes}>${texts.join('\n')}</textarea>${named.length > 0 ? html`<p class="hint">There are: ${named}</p>` : ''}`;
  }
  const input = html`<input type="text" value="${value}" autocomplete="off" spellcheck="false" ${attributes}`;
  if (candidates.length === 0) return html`${input}>`;
  const options = candidates.map(each => html`<option value="${each.value}">${each.description}</option>`);
  return html`${input} list="${id}-list"><datalist id="${id}-list">${options}</datalist>`;
}
