import { randomUUID } from 'node:crypto';
import { type Html, html } from '../../docs/html.ts';
import { isConfirmed, takesReason } from '../command/operation.ts';
import type { Field } from '../command/operation-fields.ts';
import type { Candidate } from '../command/stored-values.ts';
import { fieldLabel } from '../command/texts.ts';
import { commandText, type FilledForm, withoutSecret } from './command-line.ts';
import { breadcrumbs } from './console-page.ts';
import { type FormError, formId, inputId } from './form-values.ts';
import { operationPath } from './links.ts';
import type { Offered } from './offered.ts';

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
  const { name, description, help, fields, plan, effect, changingFields = [] } = operation;
  const inputs = Object.entries(fields).map(([name, field]) => {
    const id = inputId(name);
    const hint = field.kind === 'secret' ? `${field.prompt}. It is not shown again.` : field.description;
    return fieldView({ ...field, id, name, label: fieldLabel(name), hint, errors }, attributes =>
      control(field, form.texts[name] ?? [], attributes, candidates.get(name) ?? [], `${id}-list`),
    );
  });
  const reason = fieldView(
    { id: 'because', label: 'Reason', hint: 'why, for the log of operators', isRequired: needsReason, errors },
    attributes => html`<input type="text" value="${form.reason}" autocomplete="off" ${attributes}>`,
  );
  const changes = plan !== undefined && (effect !== 'reads' || changingFields.some(field => form.texts[field]?.length));
  const button = (step: string, text: string, isMain: boolean): Html =>
    html`<button name="step" value="${step}"${isMain ? html` class="main"` : ''}>${text}</button>`;
  const planButton = isAllowed && plan ? button('plan', 'Show the plan', changes) : '';
  const runButton = isAllowed && !isConfirmed(operation) ? button('run', 'Run it', !changes) : '';
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
<p class="actions">${changes ? [planButton, runButton] : [runButton, planButton]}<button name="step" value="command">Show as command</button></p>
</form>
${help ? html`<details><summary>How it works</summary><pre class="text" tabindex="0" aria-label="Help">${help}</pre></details>` : ''}`;
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
  return html`<div class="errors-of-form" role="alert" tabindex="-1" autofocus><h2>${title}</h2><ul>${items}</ul></div>`;
}

interface LabelledInput extends Partial<Pick<Field, 'kind' | 'neededUnless'>> {
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
  { id, name = id, label, hint, isRequired, kind, neededUnless, errors }: LabelledInput,
  input: (attributes: Html) => Html,
): Html {
  const error = errors.find(each => each.id === id);
  const isFlag = kind === 'flag';
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ');
  const attributes = html`id="${id}" name="${name}"${described ? html` aria-describedby="${described}"` : ''}${
    error ? html` aria-invalid="true"` : ''
  }${isRequired ? html` aria-required="true"` : ''}`;
  return html`<div class="field${error ? ' wrong' : ''}">${isFlag ? html`${input(attributes)} ` : ''}<label for="${id}">${label}${
    isRequired || isFlag
      ? ''
      : html` <span class="optional">${neededUnless ? `or ${fieldLabel(neededUnless)}` : 'optional'}</span>`
  }</label>
${hint ? html`<p class="hint" id="${id}-hint">${hint}</p>` : ''}
${error ? html`<p class="error" id="${id}-error">${error.text}</p>` : ''}
${isFlag ? '' : input(attributes)}</div>`;
}

/** How many values a hint names at most. */
const maxNamed = 40;

function control(
  { kind, choices, isList, isRequired, default: initial }: Field,
  texts: readonly string[],
  attributes: Html,
  candidates: readonly Candidate[],
  listId: string,
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
  const options = candidates.map(each => html`<option value="${each.value}">${each.description}</option>`);
  return html`<input type="text" value="${value}" autocomplete="off" spellcheck="false" ${attributes}${
    options.length > 0 ? html` list="${listId}"` : ''
  }>${options.length > 0 ? html`<datalist id="${listId}">${options}</datalist>` : ''}`;
}
