import { randomUUID } from 'node:crypto';
import { type Html, html } from '../../docs/html.ts';
import { fieldLabel } from '../command/field-label.ts';
import { isConfirmed, takesReason } from '../command/operation.ts';
import type { Field } from '../command/operation-fields.ts';
import type { Candidate } from '../command/stored-values.ts';
import { commandText, type FilledForm, withoutSecret } from './command-line.ts';
import { breadcrumbs } from './console-page.ts';
import { type FormError, formId, inputId } from './form-values.ts';
import type { Offered } from './offered.ts';
import { operationPath } from './view.ts';

interface FormPage {
  readonly offered: Offered;
  readonly form: FilledForm;
  readonly errors: readonly FormError[];
  readonly token: string;
  readonly needsReason: boolean;
  readonly showsCommand: boolean;
  /** What fields can be, by name. */
  readonly candidates: ReadonlyMap<string, readonly Candidate[]>;
}

/** The form of an operation, made of its definition. */
export function formView({ offered, form, errors, token, needsReason, showsCommand, candidates }: FormPage): Html {
  const { operation, isAllowed } = offered;
  const { name, description, help, fields, plan } = operation;
  const inputs = Object.entries(fields).map(([field, definition]) =>
    inputView(field, definition, form.texts[field] ?? [], errors, candidates.get(field) ?? []),
  );
  const reason = fieldView(
    { id: 'because', label: 'Reason', hint: 'why, for the log of operators', isRequired: needsReason, errors },
    attributes => html`<input type="text" value="${form.reason}" autocomplete="off" ${attributes}>`,
  );
  return html`${breadcrumbs(['/operations', 'Commands'])}
<h1>${name}</h1>
<p>${description}</p>
${effectNote(offered)}
${errorSummary(errors)}
${showsCommand && errors.length === 0 ? commandView(form) : ''}
<form method="post" action="${operationPath(name)}" class="operation" id="${formId}" novalidate>
<input type="hidden" name="token" value="${token}"><input type="hidden" name="form" value="${randomUUID()}">
${inputs}
${takesReason(operation) ? reason : ''}
<p class="buttons">${isAllowed && plan ? html`<button name="step" value="plan" class="main">Show the plan</button>` : ''}
${isAllowed && !isConfirmed(operation) ? html`<button name="step" value="run"${plan ? '' : html` class="main"`}>Run it</button>` : ''}
<button name="step" value="command">Show as command</button></p>
</form>
${help ? html`<details class="help"><summary>How it works</summary><pre class="text" tabindex="0" aria-label="Help">${help}</pre></details>` : ''}`;
}

/** The command that a form stands for; docs.js adds a button that copies it. */
export function commandView(form: FilledForm): Html {
  const text = commandText(withoutSecret(form));
  return html`<div class="command"><h2>As a command</h2><pre tabindex="0" role="group" aria-label="Code: the command"><code>${text}</code></pre></div>`;
}

function effectNote({ operation, isAllowed }: Offered): Html {
  const { effect, changingFields } = operation;
  const texts = {
    reads: changingFields
      ? `It changes something if you give: ${changingFields.map(fieldLabel).join(', ')}.`
      : 'It only reads.',
    changes: 'It makes changes.',
    'locks out': 'It locks out people or programs. The plan comes first, and wants a name typed.',
    destroys: 'It destroys what cannot be had back easily. The plan comes first, and wants a name typed.',
  };
  const refusal = isAllowed ? '' : ' This console does not run it (--read-only or --allow): copy the command.';
  return html`<p class="note ${isConfirmed(operation) ? 'hurts' : ''}">${texts[effect]}${refusal}</p>`;
}

/** The errors of a form, which take the focus, and link to their fields. */
export function errorSummary(errors: readonly FormError[]): Html {
  if (errors.length === 0) return html``;
  const items = errors.map(
    ({ id, text }) =>
      html`<li><a href="#${id}">${id.startsWith('f-') ? `${fieldLabel(id.slice(2))}: ` : ''}${text}</a></li>`,
  );
  const title = errors.some(({ id }) => id === formId) ? 'Nothing was run' : 'Correct the form';
  return html`<div class="errors-of-form" role="alert" tabindex="-1" data-focus><h2>${title}</h2><ul>${items}</ul></div>`;
}

function inputView(
  name: string,
  field: Field,
  texts: readonly string[],
  errors: readonly FormError[],
  candidates: readonly Candidate[],
): Html {
  const id = inputId(name);
  const label = fieldLabel(name);
  if (field.kind === 'flag')
    return html`<div class="field flag"><input type="checkbox" value="on" id="${id}" name="${name}" aria-describedby="${id}-hint"${texts.length > 0 ? html` checked` : ''}>
<label for="${id}">${label}</label><p class="hint" id="${id}-hint">${field.description}</p></div>`;
  const hint = field.kind === 'secret' ? `${field.prompt}. It is not shown again.` : field.description;
  return fieldView({ id, name, label, hint, isRequired: field.isRequired, errors }, attributes =>
    control(field, texts, attributes, id, candidates),
  );
}

interface LabelledInput {
  readonly id: string;
  /** Without it, the id. */
  readonly name?: string;
  readonly label: string;
  readonly hint?: string;
  readonly isRequired: boolean;
  /** Of the whole form. */
  readonly errors: readonly FormError[];
}

/** An input with its label, its hint, and what is wrong with it. @param input makes the input of its attributes */
export function fieldView(
  { id, name = id, label, hint, isRequired, errors }: LabelledInput,
  input: (attributes: Html) => Html,
): Html {
  const error = errors.find(each => each.id === id);
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ');
  const attributes = html`id="${id}" name="${name}"${described ? html` aria-describedby="${described}"` : ''}${
    error ? html` aria-invalid="true"` : ''
  }${isRequired ? html` aria-required="true"` : ''}`;
  return html`<div class="field${error ? ' wrong' : ''}"><label for="${id}">${label}${
    isRequired ? '' : html` <span class="optional">optional</span>`
  }</label>
${hint ? html`<p class="hint" id="${id}-hint">${hint}</p>` : ''}
${error ? html`<p class="error" id="${id}-error">${error.text}</p>` : ''}
${input(attributes)}</div>`;
}

function control(
  field: Field,
  texts: readonly string[],
  attributes: Html,
  id: string,
  candidates: readonly Candidate[],
): Html {
  const { kind, choices, isList } = field;
  const value = texts.join(' ') || String(field.default ?? '');
  if (kind === 'secret') return html`<input type="password" autocomplete="off" ${attributes}>`;
  if (choices) {
    const options = choices.map(each => html`<option${each === value ? html` selected` : ''}>${each}</option>`);
    return html`<select ${attributes}>${field.isRequired ? '' : html`<option value="">–</option>`}${options}</select>`;
  }
  const list = candidates.map(each => html`<option value="${each.value}">${each.description}</option>`);
  if (isList) {
    const known =
      candidates.length > 0
        ? html`<p class="hint">There are: ${candidates.slice(0, 40).map(each => html`<code>${each.value}</code> `)}</p>`
        : '';
    return html`<textarea rows="3" spellcheck="false" ${attributes}>${texts.join('\n')}</textarea>${known}`;
  }
  return html`<input type="text" value="${value}" autocomplete="off" spellcheck="false" ${attributes}${
    list.length > 0 ? html` list="${id}-list"` : ''
  }>${list.length > 0 ? html`<datalist id="${id}-list">${list}</datalist>` : ''}`;
}
